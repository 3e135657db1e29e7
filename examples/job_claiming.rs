//! How do workers share jobs, so that each job is done, in order, also if a job fails or a worker dies?
//!
//! Three worker processes do jobs from a sorted set in Redis. A worker claims the first job that is due and that nobody else does, and
//! holds the claim until the job is done. Four things go wrong, and the other workers go on:
//!
//! - A job fails twice. It is due again after a pause that doubles, and its third try succeeds.
//! - A job always fails. After its third try, it is set aside.
//! - A worker hangs in a job and is killed. The claim ends with its lease, and then another worker does the job.
//! - A worker gets SIGTERM. It finishes its job, claims no more, and ends.
//!
//! Observe that the first tries are in the order of the jobs, that each other job has one result, and that no key is left, except the
//! counter of the claims.
//!
//! ```text
//! cargo run --example job_claiming      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockkeeper::{Claims, FencingToken, LockClient, LockGuard, LockOptions};
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, AsyncConnectionConfig};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const WORKERS: usize = 3;
const JOBS: u64 = 30;
const FAILS_TWICE: u64 = 4;
const ALWAYS_FAILS: u64 = 6;
/// The first worker of this job hangs, and is killed.
const HANGS: u64 = 12;
/// When this job has a result, a worker gets SIGTERM.
const ENDS_A_WORKER: u64 = 20;

/// A job that has failed so often is set aside.
const MOST_TRIES: u32 = 3;
/// The pause after the first failure of a job. It doubles with each failure.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How long a worker pauses if no job is due, and after a fault.
const PAUSE: Duration = Duration::from_millis(20);
/// A job of a dead worker waits for so long.
const LEASE: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(60);

/// The claims are `RLock`s with the names `{example:jobs}:1` and so on.
const GROUP: &str = "example:jobs";
/// One claim looks at so many jobs, at most.
const MOST_JOBS: isize = 100;
/// The jobs without a result, by the time at which they are due. Only a result, or too many failures, removes a job.
const OPEN: &str = "example:jobs:open";
const FAILURES: &str = "example:jobs:failures";
const RESULTS: &str = "example:jobs:results";
const SET_ASIDE: &str = "example:jobs:set-aside";
/// For the check: all tries, as `token job worker`.
const TRIES: &str = "example:jobs:tries";

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    // The defaults of redis-rs, 1 s and 500 ms, are short for a busy machine.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(5)))
        .set_response_timeout(Some(Duration::from_secs(10)));
    let client = redis::Client::open(url.as_str())?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
    match env::args().nth(1) {
        None => manage(&mut redis).await,
        Some(number) => {
            let mut sigterm = signal(SignalKind::terminate())?;
            let locks = LockClient::connect(url).await?;
            let options = LockOptions::builder().renewed(LEASE).build()?;
            let jobs = locks.claims(GROUP).with(&options);
            let worker = Worker { number: number.parse()?, jobs, redis };
            worker.work(async { _ = sigterm.recv().await }).await;
            Ok(locks.shutdown().await?) // waits for the releases
        }
    }
}

struct Worker {
    number: usize,
    jobs: Claims,
    redis: Redis,
}

impl Worker {
    /// Does jobs until `stop` completes. A fault ends no worker: otherwise one short outage would end all of them.
    async fn work(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            let claimed = tokio::select! {
                () = &mut stop => return, // what the dropped call has claimed is released
                claimed = self.claim() => claimed,
            };
            let done = match claimed {
                Ok(Some((job, claim))) => self.finish(job, claim).await.map(|()| true), // a stop waits for this
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            if let Err(error) = &done {
                eprintln!("worker {}: {error}", self.number);
            }
            if !matches!(done, Ok(true)) {
                tokio::select! {
                    () = &mut stop => return,
                    () = sleep(PAUSE) => {}
                }
            }
        }
    }

    /// Claims the first job that is due and that nobody else does.
    async fn claim(&self) -> Result<Option<(u64, LockGuard<FencingToken>)>> {
        let mut redis = self.redis.clone();
        loop {
            let due: Vec<u64> = redis.zrangebyscore_limit(OPEN, "-inf", now()?, 0, MOST_JOBS).await?;
            let Some(claim) = self.jobs.claim(due).await? else { return Ok(None) };
            let job: u64 = claim.name().parse()?;
            // Look again: another worker perhaps finished the job just before.
            let due_at: Option<u64> = redis.zscore(OPEN, job).await?;
            if due_at.is_some_and(|at| at <= now().unwrap_or(0)) {
                let () = redis.rpush(TRIES, format!("{} {job} {}", claim.token(), self.number)).await?;
                return Ok(Some((job, claim)));
            }
            claim.unlock().await?;
        }
    }

    /// Does the job, and records its result or its failure while it is claimed.
    async fn finish(&self, job: u64, claim: LockGuard<FencingToken>) -> Result<()> {
        let mut redis = self.redis.clone();
        let work = async {
            match self.do_job(job).await? {
                // The first result counts: a worker that was paused for longer than the lease changes nothing.
                Ok(result) => Ok(redis::pipe()
                    .atomic()
                    .hset_nx(RESULTS, job, result)
                    .zrem(OPEN, job)
                    .exec_async(&mut redis)
                    .await?),
                Err(problem) => self.failed(job, problem).await,
            }
        };
        // If the claim is lost, the work is dropped, or this returns an error after it. If the job is still open then, a worker claims it
        // again.
        claim.finish(work).await?
    }

    /// The inner result is that of the job.
    async fn do_job(&self, job: u64) -> Result<Result<String, &'static str>> {
        let mut redis = self.redis.clone();
        let tries = tries_of(job, &mut redis).await?.len();
        match job {
            FAILS_TWICE if tries <= 2 => return Ok(Err("a fault that will pass")),
            ALWAYS_FAILS => return Ok(Err("a fault that stays")),
            HANGS if tries == 1 => std::future::pending().await,
            _ => sleep(Duration::from_millis(5)).await,
        }
        Ok(Ok(format!("done by worker {}", self.number)))
    }

    async fn failed(&self, job: u64, problem: &str) -> Result<()> {
        let mut redis = self.redis.clone();
        let failures: u32 = redis.hincr(FAILURES, job, 1).await?;
        let mut steps = redis::pipe();
        steps.atomic();
        if failures < MOST_TRIES {
            let back_off = BACK_OFF * 2_u32.pow(failures - 1);
            println!("  job {job} failed ({problem}), and is due again after {back_off:?}");
            steps.zadd(OPEN, job, now()? + u64::try_from(back_off.as_millis())?);
        } else {
            println!("  job {job} failed ({problem}), and is set aside after {failures} tries");
            steps.zrem(OPEN, job).rpush(SET_ASIDE, job);
        }
        Ok(steps.exec_async(&mut redis).await?)
    }
}

/// Milliseconds since 1970.
fn now() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

async fn manage(redis: &mut Redis) -> Result<()> {
    delete_all(redis).await?; // of a run that was interrupted
    // All are due. The order of the jobs is that of their times.
    let jobs: Vec<(u64, u64)> = (1..=JOBS).map(|job| (job, job)).collect();
    let () = redis.zadd_multiple(OPEN, &jobs).await?;
    let outcome = run(redis).await;
    let tries = all_tries(redis).await?;
    let results: HashMap<u64, String> = redis.hgetall(RESULTS).await?;
    let set_aside: Vec<u64> = redis.lrange(SET_ASIDE, 0, -1).await?;
    delete_all(redis).await?;
    outcome?;
    check(&tries, &results, &set_aside)
}

async fn delete_all(redis: &mut Redis) -> Result<()> {
    Ok(redis.del(&[OPEN, FAILURES, RESULTS, SET_ASIDE, TRIES]).await?)
}

async fn run(redis: &mut Redis) -> Result<()> {
    println!("{WORKERS} worker processes do {JOBS} jobs");
    let mut workers = BTreeMap::new();
    for number in 1..=WORKERS {
        let mut worker = Command::new(env::current_exe()?);
        workers.insert(number, worker.arg(number.to_string()).kill_on_drop(true).spawn()?);
    }
    let hung = first_try(HANGS, redis).await?;
    let mut killed = workers.remove(&hung).ok_or("an unknown worker")?;
    killed.kill().await?;
    let killed_at = Instant::now();
    println!("  worker {hung} hangs in job {HANGS}, and is killed");

    wait_until("a result", async |redis| Ok(redis.hexists(RESULTS, ENDS_A_WORKER).await?), redis).await?;
    let (stopped, worker) = workers.pop_first().ok_or("no worker")?;
    terminate(worker).await?;
    println!("  worker {stopped} got SIGTERM, and has ended");

    wait_until("the second try", async |redis| Ok(tries_of(HANGS, redis).await?.len() > 1), redis).await?;
    println!(
        "  job {HANGS} is done again {:.1} s after the kill: the lease is {LEASE:?}",
        killed_at.elapsed().as_secs_f64()
    );
    wait_until("all jobs", async |redis| Ok(redis.zcard::<_, u64>(OPEN).await? == 0), redis).await?;
    for worker in workers.into_values() {
        terminate(worker).await?;
    }
    Ok(())
}

/// Tells a worker to end, and waits until it has ended well.
async fn terminate(mut worker: Child) -> Result<()> {
    let id = worker.id().ok_or("the worker has ended")?.to_string();
    Command::new("kill").args(["-TERM", &id]).status().await?;
    let status = worker.wait().await?;
    if status.success() { Ok(()) } else { Err(format!("a worker failed: {status}").into()) }
}

/// Returns the worker of the first try of a job.
async fn first_try(job: u64, redis: &mut Redis) -> Result<usize> {
    wait_until("the first try", async |redis| Ok(!tries_of(job, redis).await?.is_empty()), redis).await?;
    Ok(tries_of(job, redis).await?[0])
}

/// Returns the workers that tried this job.
async fn tries_of(job: u64, redis: &mut Redis) -> Result<Vec<usize>> {
    let tries = all_tries(redis).await?.into_values();
    Ok(tries.filter(|(tried, _)| *tried == job).map(|(_, worker)| worker).collect())
}

/// Returns all tries in the order of their claims: the job and the worker of each token.
async fn all_tries(redis: &mut Redis) -> Result<BTreeMap<u64, (u64, usize)>> {
    let lines: Vec<String> = redis.lrange(TRIES, 0, -1).await?;
    let mut tries = BTreeMap::new();
    for line in lines {
        let [token, job, worker] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(line.into()) };
        tries.insert(token.parse()?, (job.parse()?, worker.parse()?));
    }
    Ok(tries)
}

async fn wait_until(
    what: &str,
    is_so: impl AsyncFn(&mut Redis) -> Result<bool>,
    redis: &mut Redis,
) -> Result<()> {
    let start = Instant::now();
    while !is_so(redis).await? {
        if start.elapsed() > LIMIT {
            return Err(format!("waited in vain for {what}").into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn check(
    tries: &BTreeMap<u64, (u64, usize)>,
    results: &HashMap<u64, String>,
    set_aside: &[u64],
) -> Result<()> {
    let mut first_tries = Vec::new();
    let mut late = 0;
    for (job, _) in tries.values() {
        if !first_tries.contains(job) {
            late += usize::from(first_tries.last().is_some_and(|last| last > job));
            first_tries.push(*job);
        }
    }
    // The worker that got SIGTERM perhaps gave back a job that it had claimed just then.
    let in_order = first_tries.len() as u64 == JOBS && late <= 1;
    let are_done = (1..=JOBS).all(|job| results.contains_key(&job) != (job == ALWAYS_FAILS));
    if !in_order || !are_done || set_aside != [ALWAYS_FAILS] {
        return Err(
            format!("first tries {first_tries:?}, results {results:?}, set aside {set_aside:?}").into()
        );
    }
    println!(
        "the first tries are in order, {} jobs have a result, and job {ALWAYS_FAILS} is set aside",
        results.len()
    );
    Ok(())
}
