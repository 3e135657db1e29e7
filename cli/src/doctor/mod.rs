//! `lockkeeper doctor`: whether a server is fit for locks, and this user for the server.

mod acl;
mod facts;
mod finding;
mod messages;
mod replicas;
mod report;
mod rights;
mod server;
mod times;
mod tracking;

use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::{join, join_all};
use lockkeeper::LockClient;

use crate::args::{Connection, Doctor, Use};
use crate::connect::{SINGLE, Settings};
use crate::exit::{Failure, print};
use facts::Facts;
use finding::Finding;
use report::Report;

/// In a cluster, the user has rights on each master. So many names for each make it likely that all masters are asked.
const NAMES_FOR_EACH: usize = 8;

pub(crate) async fn doctor(connection: &Connection, options: &Doctor) -> Result<ExitCode, Failure> {
    if let Some(prefix) = &options.acl {
        print(acl::command(prefix, &kinds(&options.kind)).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::read(connection)?;
    let mut report = Report::new(options.json, &options.ignore);
    match settings.clone().client().await {
        Ok(locks) => {
            examine(&locks, &settings, options, &mut report).await?;
            let _ = locks.shutdown().await; // locks that it could not release have short leases
        }
        Err(error) => report.add(rights::refused(error)?)?,
    }
    report.end()
}

async fn examine(
    locks: &LockClient,
    settings: &Settings,
    options: &Doctor,
    report: &mut Report,
) -> Result<(), Failure> {
    report.add(Finding::ok("connection", "the server answers, and accepts this user"))?;
    report.add(Finding::ok("scripts", "the server can run the scripts of the locks"))?;
    let masters = servers(locks, &settings.kind, report).await?;
    let name = format!("{}{}", options.name, locks.id());
    let names: Vec<String> = match masters.len() {
        0 | 1 => vec![name.clone()],
        count => (0..count * NAMES_FOR_EACH).map(|index| format!("{name}-{index}")).collect(),
    };
    let mut examined = Vec::new();
    for kind in kinds(&options.kind) {
        let rights = rights::examine(locks, kind, &names).await;
        report.add(rights.own(settings.locks().name_prefix(), &options.name))?;
        examined.push(rights);
    }
    report.add(others(settings, &examined, names.len()).await?)?;
    report.add_all(tracking(locks, settings, &masters, &names).await)?;
    let round_trip = round_trip(locks, settings, &name, report).await?;
    // Both checks mostly wait, so they run at the same time.
    let (messages, clocks) = join(messages(locks, settings, &name, round_trip), times::clocks(locks)).await;
    report.add(messages?)?;
    match clocks {
        Ok(findings) => report.add_all(findings),
        // `servers` has already reported that this user may not ask the masters.
        Err(_) if masters.is_empty() => Ok(()),
        Err(error) => report.add(Finding::unknown("clock", error.to_string(), "run this again")),
    }
}

/// Asks as a client without a `name_prefix`, to which the names of others belong, too.
async fn others(settings: &Settings, own: &[rights::Examined], count: usize) -> Result<Finding, Failure> {
    let locks = match settings.with(|locks| locks.name_prefix(""))?.client().await {
        Ok(locks) => locks,
        Err(error) => return rights::refused(error),
    };
    let names: Vec<String> = (0..count).map(|index| format!("{}-{index}", locks.id())).collect();
    let finding = rights::others(&locks, own, &names).await;
    let _ = locks.shutdown().await; // this client has acquired nothing
    Ok(finding)
}

/// Returns the addresses of the masters. None: this user may not ask them, and that is reported.
async fn servers(locks: &LockClient, kind: &str, report: &mut Report) -> Result<Vec<String>, Failure> {
    let servers = match locks.servers().await {
        Ok(servers) => servers,
        Err(error) => {
            let text = format!("memory, persistence, replicas and clock were not examined: {error}");
            report.add(Finding::unknown("facts", text, "grant this user `+info`"))?;
            return Ok(Vec::new());
        }
    };
    report.add(replicas::deployment(kind, servers.len()))?;
    for (address, facts) in &servers {
        let facts = Facts(facts);
        let findings = server::server(facts).into_iter().chain([replicas::replicas(kind, facts)]);
        report.add_all(findings.map(|finding| finding.at(address)))?;
    }
    Ok(servers.into_keys().collect())
}

/// Asks each master. The URL of a single server leads to it, and those of others perhaps to a replica.
async fn tracking(
    locks: &LockClient,
    settings: &Settings,
    masters: &[String],
    names: &[String],
) -> Vec<Finding> {
    let ask = |address| tracking::tracking(locks, settings, address, names);
    match masters {
        _ if settings.kind == SINGLE => vec![ask(None).await],
        [] => vec![Finding::unknown("tracking", "the masters are not known", "grant this user `+info`")],
        _ => join_all(masters.iter().map(|address| ask(Some(address)))).await,
    }
}

/// Returns how long a round trip takes.
async fn round_trip(
    locks: &LockClient,
    settings: &Settings,
    name: &str,
    report: &mut Report,
) -> Result<Duration, Failure> {
    match times::round_trips(locks, name).await {
        Ok(times) => {
            report.add(times::judge_round_trips(&times, settings.locks().command_timeout()))?;
            Ok(times::percentile(&times, 50))
        }
        Err(error) => {
            report.add(Finding::unknown("round-trip", error.to_string(), "repair that first"))?;
            Ok(Duration::ZERO)
        }
    }
}

/// The waiter is another client: owners of one client need no message.
async fn messages(
    locks: &LockClient,
    settings: &Settings,
    name: &str,
    round_trip: Duration,
) -> Result<Finding, Failure> {
    let waiter = match settings.with(|locks| locks.safety_poll(messages::SAFETY_POLL))?.client().await {
        Ok(waiter) => waiter,
        Err(error) => return rights::refused(error),
    };
    let finding = messages::messages(locks, &waiter, name, round_trip).await;
    let _ = waiter.shutdown().await; // locks that it could not release have short leases
    Ok(finding)
}

/// Without a choice, all. The two sides of a read-write lock need the same rights.
fn kinds(chosen: &[Use]) -> Vec<Use> {
    use Use::{Claim, Fair, Fenced, Leader, Linger, Read, Rlock, Semaphore};
    if chosen.is_empty() {
        return vec![Rlock, Fair, Fenced, Read, Semaphore, Claim, Leader, Linger];
    }
    chosen.to_vec()
}
