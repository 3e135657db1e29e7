//! Guarantee 18: what `docs/operate.md` lists is what the source has. It needs no server. The metrics are compared in
//! `tests/metrics.rs`, where they are recorded.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::sources::files;
use serde_json::Value;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Ident, LitStr, Token};

const PAGE: &str = include_str!("../docs/operate.md");
const DASHBOARD: &str = include_str!("../docs/grafana.json");

// --- the source --------------------------------------------------------------------------------------------------------

/// The level and the fields of an event or a span.
type Event = (String, BTreeSet<String>);

/// The events of the source by message, and the spans by name.
#[derive(Default)]
struct Found(BTreeMap<String, Event>);

impl Found {
    fn in_source() -> Self {
        let mut found = Self::default();
        let mut macros = 0;
        for (file, text) in files("src", &["rs"]) {
            macros += text.lines().filter(|line| !line.trim().starts_with("//")).map(calls).sum::<usize>();
            found.visit_file(&syn::parse_file(&text).unwrap_or_else(|error| panic!("{file:?}: {error}")));
        }
        assert_eq!(found.0.len(), macros, "two events have one message, or one is inside of another macro");
        found
    }
}

/// How often a line calls a macro of `tracing`.
fn calls(line: &str) -> usize {
    line.split("tracing::").skip(1).filter(|rest| rest.split('(').next().unwrap().ends_with('!')).count()
}

impl<'ast> Visit<'ast> for Found {
    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        let path: Vec<String> = found.path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [room, level] = &path[..]
            && room == "tracing"
        {
            let parts = found.parse_body_with(Punctuated::<Part, Token![,]>::parse_terminated).unwrap();
            let (mut message, mut fields) = (None, BTreeSet::new());
            for part in parts {
                match part {
                    Part::Text(text) => message = Some(text),
                    Part::Field(name) => assert!(fields.insert(name), "{message:?} has a field twice"),
                }
            }
            self.0.insert(message.expect("a message or a name"), (level.clone(), fields));
        }
        visit::visit_macro(self, found);
    }
}

/// What stands between two commas of such a macro.
enum Part {
    Text(String),
    Field(String),
}

impl Parse for Part {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return Ok(Self::Text(input.parse::<LitStr>()?.value()));
        }
        let skip_sigil = || -> syn::Result<()> {
            input.parse::<Option<Token![%]>>()?;
            input.parse::<Option<Token![?]>>()?;
            Ok(())
        };
        skip_sigil()?;
        let name: Ident = input.parse()?;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            skip_sigil()?;
            input.parse::<syn::Expr>()?;
        }
        Ok(Self::Field(name.to_string()))
    }
}

// --- the page ----------------------------------------------------------------------------------------------------------

/// The cells of the rows of the first table below a heading.
fn table(heading: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let (_, section) = PAGE.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells =
        |row: &'static str| row.strip_prefix('|').and_then(|row| row.strip_suffix('|')).expect("a row");
    rows.skip(2).map(move |row| cells(row).split('|').map(str::trim).collect())
}

/// What a cell quotes.
fn quoted(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[test]
fn the_page_shows_the_settings_for_production() {
    let (page, file) =
        (include_str!("../docs/configuration.md"), include_str!("../examples/production.toml"));
    assert!(page.contains(&format!("```toml\n{file}```\n")), "docs/configuration.md shows another file");
}

#[test]
fn the_page_lists_every_event_with_its_fields() {
    let Found(mut events) = Found::in_source();
    events.retain(|_, (level, _)| !level.ends_with("_span"));
    assert!(events.len() > 20, "events are not found any more");
    compare(events, "## Events");
}

#[test]
fn the_page_lists_every_span_with_its_fields() {
    let spans = Found::in_source().0.into_iter().filter_map(|(name, (level, fields))| {
        level.strip_suffix("_span").map(|level| (name, (level.to_owned(), fields)))
    });
    compare(spans.collect(), "## Spans");
}

fn compare(mut events: BTreeMap<String, Event>, heading: &str) {
    let mut problems = Vec::new();
    for row in table(heading) {
        let &[level, event, fields, meaning, _] = &row[..] else { panic!("{row:?}") };
        let event = quoted(event).next().unwrap_or_else(|| panic!("{row:?}"));
        // The page shortens long messages.
        let is_it = |message: &&String| match event.strip_suffix('…') {
            Some(start) => message.starts_with(start),
            None => **message == event,
        };
        let Some(found) = events.keys().find(is_it).cloned().and_then(|message| events.remove(&message))
        else {
            problems.push(format!("no event has the message {event:?}"));
            continue;
        };
        let listed = (level.to_owned(), quoted(fields).collect());
        if found != listed {
            problems.push(format!("{event:?} is {found:?}, and listed as {listed:?}"));
        }
        assert!(!meaning.is_empty(), "{event}");
    }
    problems.extend(events.into_iter().map(|event| format!("the page lacks {event:?}")));
    assert!(problems.is_empty(), "docs/operate.md: {problems:#?}");
}

// --- the dashboard -----------------------------------------------------------------------------------------------------

/// The series of each metric on the page with their labels, as an exporter with buckets names them.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    for row in table("## Metrics") {
        let (metric, mut labels) = (quoted(row[0]).next().unwrap(), quoted(row[2]).collect::<BTreeSet<_>>());
        if row[1] == "histogram" {
            labels.insert("le".to_owned());
            series.insert(format!("{metric}_bucket"), labels);
        } else {
            series.insert(metric, labels);
        }
    }
    series
}

/// The words of a query in PromQL, without strings.
fn words(query: &str) -> impl Iterator<Item = &str> {
    let code = query.split('"').step_by(2);
    code.flat_map(|code| code.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_$".contains(letter)))
        .filter(|word| word.starts_with(|letter: char| letter.is_ascii_alphabetic()))
}

/// The words that are no labels of lockkeeper. Prometheus adds the label `instance`.
const SYNTAX: [&str; 8] =
    ["by", "histogram_quantile", "increase", "instance", "label_values", "min_over_time", "rate", "sum"];

/// The metric that a query asks for. It exists, and has the labels of the query.
fn metric_of(query: &str, all: &BTreeMap<String, BTreeSet<String>>) -> String {
    let (metrics, others): (BTreeSet<&str>, BTreeSet<&str>) =
        words(query).partition(|word| word.starts_with("lockkeeper_"));
    let mut metrics = metrics.into_iter();
    let (Some(metric), None) = (metrics.next(), metrics.next()) else { panic!("not one metric: {query}") };
    let labels = all.get(metric).unwrap_or_else(|| panic!("{metric} does not exist: {query}"));
    for word in others {
        assert!(SYNTAX.contains(&word) || labels.contains(word), "{metric} has no label {word}: {query}");
    }
    metric.to_owned()
}

#[test]
fn the_alerts_use_existing_metrics_and_labels() {
    let (_, alerts) = PAGE.split_once("\n## Alerts\n").expect("the section");
    let queries: Vec<&str> =
        alerts.split("```promql").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(queries.len() > 3, "queries are not found any more");
    let all = series();
    for query in queries {
        metric_of(query, &all);
        for value in query.split('"').skip(1).step_by(2).flat_map(|values| values.split('|')) {
            assert!(PAGE.contains(&format!("`{value}`")), "no label has the value {value}: {query}");
        }
    }
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let all = series();
    let mut shown = BTreeSet::new();
    let check = |query: &str| metric_of(query, &all);
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(!panel["title"].as_str().unwrap().is_empty(), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            shown.insert(check(target["expr"].as_str().unwrap()));
            // A legend names labels, too.
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                assert!(target["expr"].as_str().unwrap().contains(label), "{legend} of {target}");
            }
        }
    }
    assert_eq!(shown, all.keys().cloned().collect(), "left: panels; right: docs/operate.md");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| variable["type"] == "datasource"));
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        // Grafana runs the one, and shows the other.
        assert_eq!(variable["query"]["query"], variable["definition"]);
        check(variable["definition"].as_str().unwrap());
    }
}
