//! Clients on several threads, which pause where they lock data. The other worlds run on one thread, so they cannot see what two
//! threads do at the same moment. `scripts/simulate --stress SECONDS` runs this for longer.
//!
//! It cannot see what a weaker memory order allows on other processors, and no failure can be repeated by a seed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper::{BaseLock, Error, Lock, LockClient, LockConfig, LockGuard, PermitId, Result, Source};
use lockkeeper_memory::MemoryServer;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};

const TASKS: u64 = 6;
const PERMITS: u32 = 3;

/// Nothing is lost here, so no waiter needs longer, also on a machine that has little time for this test.
const LIMIT: Duration = Duration::from_secs(60);

/// Who is inside of a lock or a semaphore.
#[derive(Default)]
struct Inside {
    writers: u32,
    readers: u32,
    permits: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum As {
    Writer,
    Reader,
    Permits(u32),
}

type Book = Arc<Mutex<HashMap<&'static str, Inside>>>;

struct Section(Book, &'static str, As);

impl Section {
    fn enter(book: &Book, name: &'static str, kind: As) -> Self {
        let mut all = book.lock().unwrap();
        let inside = all.entry(name).or_default();
        match kind {
            As::Writer => inside.writers += 1,
            As::Reader => inside.readers += 1,
            As::Permits(count) => inside.permits += count,
        }
        let &mut Inside { writers, readers, permits } = inside;
        let is_legal = writers <= 1 && (writers == 0 || readers == 0) && permits <= PERMITS;
        assert!(is_legal, "{name}: {writers} writers, {readers} readers, {permits} permits");
        drop(all);
        Self(Arc::clone(book), name, kind)
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let inside = all.entry(self.1).or_default();
        match self.2 {
            As::Writer => inside.writers -= 1,
            As::Reader => inside.readers -= 1,
            As::Permits(count) => inside.permits -= count,
        }
    }
}

fn up_to(most: u64) -> Duration {
    Duration::from_micros(fastrand::u64(..most))
}

async fn work() {
    match fastrand::u8(..8) {
        0 => sleep(up_to(2_000)).await,
        1..4 => yield_now().await,
        _ => {}
    }
}

async fn acquire<K: BaseLock>(lock: &mut Lock<'_, K>) -> Result<Option<LockGuard<K::Extra>>> {
    match fastrand::u8(..5) {
        0 => lock.try_lock().await,
        1 => lock.try_lock_for(up_to(5_000)).await,
        2 => timeout(up_to(5_000), lock.lock()).await.map_or(Ok(None), |result| result.map(Some)),
        _ => lock.lock().await.map(Some),
    }
}

/// One section, and perhaps a second one that begins while the first is released.
async fn section<K: BaseLock>(
    lock: &mut Lock<'_, K>,
    book: &Book,
    name: &'static str,
    kind: As,
) -> Result<()> {
    let Some(guard) = acquire(lock).await? else { return Ok(()) };
    let section = Section::enter(book, name, kind);
    work().await;
    match fastrand::u8(..5) {
        0 => {
            drop(section);
            guard.unlock().await?;
        }
        1 => {
            drop(section);
            drop(guard);
        }
        2 => {
            let again = lock.lock().await?;
            drop(section);
            // The last two holds are released at the same moment.
            let other = spawn_blocking(move || drop(again));
            drop(guard);
            other.await.unwrap();
        }
        3 => {
            drop(section);
            let releasing = tokio::spawn(guard.unlock());
            let again = lock.lock().await?;
            let section = Section::enter(book, name, kind);
            releasing.await.unwrap()?;
            work().await;
            drop(section);
            drop(again);
        }
        _ => {
            drop(section);
            let other = spawn_blocking(move || drop(guard));
            // Released by now, or entered again.
            let again = acquire(lock).await?;
            let section = again.as_ref().map(|_| Section::enter(book, name, kind));
            work().await;
            drop(section);
            drop(again);
            other.await.unwrap();
        }
    }
    assert_eq!(lock.hold_count(), 0, "{name}");
    Ok(())
}

async fn with_permits(locks: &LockClient, book: &Book) -> Result<()> {
    let semaphore = locks.semaphore("semaphore", PERMITS);
    let count = fastrand::u32(1..=2);
    let acquired: Option<LockGuard<PermitId>> = match fastrand::u8(..4) {
        0 => semaphore.try_acquire_many(count).await?,
        1 => semaphore.try_acquire_many_for(count, up_to(5_000)).await?,
        2 => match timeout(up_to(5_000), semaphore.acquire_many(count)).await {
            Ok(permit) => Some(permit?),
            Err(_) => None,
        },
        _ => Some(semaphore.acquire_many(count).await?),
    };
    let Some(permit) = acquired else { return Ok(()) };
    let section = Section::enter(book, "semaphore", As::Permits(count));
    work().await;
    drop(section);
    if fastrand::bool() {
        permit.unlock().await?;
    }
    Ok(())
}

/// What one task does until the end, or until its client is shut down. Returns the number of sections.
async fn task(locks: LockClient, book: Book, is_over: Arc<AtomicBool>) -> u64 {
    let mut rlock = locks.rlock("rlock");
    let mut fair = locks.fair_lock("fair");
    let mut fenced = locks.fenced_lock("fenced");
    let mut reader = locks.read_write_lock("both").into_read();
    let mut writer = locks.read_write_lock("both").into_write();
    let mut sections = 0;
    while !is_over.load(Ordering::Relaxed) {
        let done = match fastrand::u8(..8) {
            0 => section(&mut fair, &book, "fair", As::Writer).await,
            1 => section(&mut fenced, &book, "fenced", As::Writer).await,
            2 | 3 => section(&mut reader, &book, "both", As::Reader).await,
            4 => section(&mut writer, &book, "both", As::Writer).await,
            5 => with_permits(&locks, &book).await,
            _ => section(&mut rlock, &book, "rlock", As::Writer).await,
        };
        match done {
            Ok(()) => sections += 1,
            Err(Error::Closed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    sections
}

/// Whether the server has only what stays: a counter of tokens, and a semaphore of which no permit is in use.
fn is_quiet(server: &MemoryServer) -> bool {
    let keys = String::from_utf8(server.execute(&["KEYS", "*"])).unwrap();
    let stays = ["semaphore", "redisson_lock_token:{fenced}"];
    let none_is_in_use = [format!("$1\r\n{PERMITS}\r\n"), "$-1\r\n".to_owned()];
    keys.lines().all(|line| line.starts_with(['*', '$']) || stays.contains(&line))
        && none_is_in_use.iter().any(|reply| reply.as_bytes() == server.execute(&["GET", "semaphore"]))
}

/// Two processes, which end in the middle of their work.
async fn round() -> u64 {
    let server = MemoryServer::new();
    let (book, is_over) = (Book::default(), Arc::new(AtomicBool::new(false)));
    // No message is lost. So a waiter that is not woken waits for too long.
    // And no lease ends in time that would hide a lock that is left.
    let config =
        LockConfig::builder().safety_poll(LIMIT * 10).command_timeout(LIMIT).watchdog_lease(LIMIT * 4);
    let config = config.build().unwrap();
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let source = Source::stream(server.connector());
        let locks = LockClient::connect_with(source, config.clone()).await.unwrap();
        for _ in 0..TASKS {
            tasks.spawn(task(locks.clone(), Arc::clone(&book), Arc::clone(&is_over)));
        }
        clients.push(locks);
    }
    sleep(up_to(100_000)).await;
    clients.remove(0).shutdown().await.unwrap();
    sleep(up_to(20_000)).await;
    is_over.store(fastrand::bool(), Ordering::Relaxed);
    clients.remove(0).shutdown().await.unwrap();
    let sections = tasks.join_all().await.into_iter().sum();
    // What a task dropped last is released in the background.
    while !is_quiet(&server) {
        sleep(Duration::from_millis(1)).await;
    }
    sections
}

fn pause() {
    match fastrand::u8(..64) {
        0 => thread::sleep(up_to(300)),
        1..8 => thread::yield_now(),
        _ => {}
    }
}

#[test]
fn no_order_of_threads_breaks_a_lock() {
    let seconds = std::env::var("SIMULATE_STRESS").map_or(3, |seconds| seconds.parse().unwrap());
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .on_thread_start(|| lockkeeper::pause_by(pause))
        .build()
        .unwrap();
    let (start, mut rounds, mut sections) = (Instant::now(), 0, 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        sections += runtime.block_on(async {
            timeout(LIMIT, tokio::spawn(round()))
                .await
                .expect("a task is stuck, or a lock is left")
                .expect("no panic")
        });
        rounds += 1;
    }
    println!("{sections} sections in {rounds} rounds");
}
