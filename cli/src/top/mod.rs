//! `lockkeeper top`.

mod render;
mod screen;
mod state;

use std::env;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockkeeper::{Error, LockClient, LockInfo};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::args::{Connection, Ls, Top};
use crate::connect::Settings;
use crate::exit::{Failure, to_list};
use crate::look;
use crate::ls::ls;
use crate::table::Output;
use crate::text::visible;
use crate::why::explain;
use screen::Screen;
use state::{Action, Event, State};

/// How often the user sees that time passes, at least.
const TICK: Duration = Duration::from_secs(1);

/// The server works on a list for one such part of the time, at most. The same for the locks on the screen.
const SHARE: u32 = 25;

/// A part takes a server no longer than this.
const LONGEST: Duration = Duration::from_millis(100);

/// Shows the locks until the user quits. Prints one table if the output is no terminal.
pub(crate) async fn top(connection: &Connection, options: &Top) -> Result<ExitCode, Failure> {
    if Output::of_this_process() == Output::Other {
        let options = Ls { pattern: options.pattern.clone(), sort: true, ..Ls::default() };
        return ls(connection, &options).await;
    }
    let locks = Settings::read(connection)?.connect().await?;
    // An error of the first look ends the command. The screen shows later errors.
    let first = list(&locks, &options.pattern, 0).await.map_err(to_list)?;
    let [mut hangup, mut terminate] = [signal(SignalKind::hangup()), signal(SignalKind::terminate())];
    let (Ok(hangup), Ok(terminate)) = (&mut hangup, &mut terminate) else {
        return Err(Failure::unavailable("signals cannot be received"));
    };
    let has_colours = env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let mut keys = screen::keys();
    let mut screen = Screen::open().map_err(Failure::output)?;
    let (start, mut state) = (Instant::now(), State::new());
    let mut work: FuturesUnordered<BoxFuture<'_, Event>> = FuturesUnordered::new();
    let mut ticks = interval(options.every.min(TICK));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next = Some(Event::Listed(Ok((first, Duration::ZERO))));
    // When the last list began, the last look at the locks on the screen, and when the next look may begin.
    let (mut began, mut looked, mut look_at) = (start, start, Some(start));
    loop {
        if let Some(event) = next.take() {
            match &event {
                Event::Listed(_) => {
                    began = Instant::now().max(began + options.every);
                    work.push(list_at(&locks, &options.pattern, began).boxed());
                }
                Event::Looked(_) => {
                    let took = looked.elapsed().min(LONGEST);
                    look_at = Some(looked + options.every.max(took * SHARE));
                }
                // A list that takes longer than `every` is still running. Meanwhile, only the locks on the screen are
                // looked at.
                Event::Tick
                    if look_at.is_some_and(|at| at <= Instant::now()) && began.elapsed() >= options.every =>
                {
                    work.push(look(&locks, state.names()).boxed());
                    (looked, look_at) = (Instant::now(), None);
                }
                _ => {}
            }
            match state.update(event, start.elapsed()) {
                None => {}
                Some(Action::Quit) => return Ok(ExitCode::SUCCESS),
                Some(Action::Show(name)) => work.push(show(&locks, name).boxed()),
                Some(Action::Release { name, owners }) => work.push(release(&locks, name, owners).boxed()),
            }
        }
        draw(&mut screen, &mut state, has_colours).map_err(Failure::output)?;
        next = tokio::select! {
            biased;
            _ = hangup.recv() => return Ok(ExitCode::SUCCESS),
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            key = keys.recv() => match key {
                Some(pressed) => pressed,
                None => return Ok(ExitCode::SUCCESS),
            },
            Some(event) = work.next(), if !work.is_empty() => Some(event),
            _ = ticks.tick() => Some(Event::Tick),
        };
    }
}

fn draw(screen: &mut Screen, state: &mut State, has_colours: bool) -> io::Result<()> {
    state.fit(render::lines(screen.height()?));
    screen.draw(|frame| render::render(frame, state, has_colours))
}

/// Pauses so many times as long as the server took for each part. A server that was away took no time.
async fn list(locks: &LockClient, pattern: &str, pause: u32) -> lockkeeper::Result<Vec<LockInfo>> {
    let (mut parts, mut rows) = (locks.list_parts(pattern), Vec::new());
    loop {
        let asked = Instant::now();
        let Some(part) = parts.next().await? else { return Ok(rows) };
        let took = asked.elapsed().min(LONGEST);
        rows.extend(part.locks);
        sleep(took * pause).await;
    }
}

/// Lists the locks at this time, or at once if it is over.
async fn list_at(locks: &LockClient, pattern: &str, at: Instant) -> Event {
    sleep_until(at).await;
    let start = Instant::now();
    let listed = list(locks, pattern, SHARE - 1).await;
    Event::Listed(listed.map(|rows| (rows, start.elapsed())).map_err(|error| error.to_string()))
}

/// Looks at the locks with these names.
async fn look(locks: &LockClient, names: Vec<String>) -> Event {
    let look = async |name: String| {
        let info = match locks.inspect(&name).await {
            // Another program replaced the lock by other data, so the lock is free.
            Err(Error::WrongKind { .. }) => None,
            info => info?,
        };
        lockkeeper::Result::Ok((name, info))
    };
    let looks = try_join_all(names.into_iter().map(look)).await;
    Event::Looked(looks.map_err(|error: Error| error.to_string()))
}

async fn show(locks: &LockClient, name: String) -> Event {
    // A chain can need a second look, so the lock and the chain are asked for at the same time.
    let text = match join(locks.inspect(&name), locks.why(&name)).await {
        (Ok(info), chains) => {
            let chains = explain(&chains.unwrap_or_default());
            let why = if chains.is_empty() { chains } else { format!("\n{chains}") };
            look::describe(&name, info.as_ref()) + &why
        }
        (Err(error), _) => visible(&error.to_string()).into_owned(),
    };
    Event::Shown { name, text }
}

/// Releases the lock if these owners still hold it.
async fn release(locks: &LockClient, name: String, owners: Vec<String>) -> Event {
    let released = async {
        let Some(info) = locks.inspect(&name).await? else {
            return Ok::<_, Error>("the lock was free by then");
        };
        if !info.holders.iter().map(|holder| &holder.owner).eq(&owners) {
            return Ok("nothing was released: others hold it by now");
        }
        locks.force_unlock(&info).await.map(look::outcome)
    };
    Event::Released(match released.await {
        Ok(outcome) => format!("{name}: {outcome}"),
        Err(error) => format!("{name}: {error}"),
    })
}
