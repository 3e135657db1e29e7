//! Worker processes that are killed in the middle of their jobs: no job is done twice, none is lost, and they begin in order.

use std::collections::BTreeMap;
use std::process;
use std::time::Duration;

use redis::AsyncCommands;
use tokio::time::{Instant, sleep};

use crate::support::{Child, LIMIT, MS, Scene, child, connect, connection, eventually, patient, renewing};

const WORKERS: usize = 3;
const JOBS: u64 = 120;
/// The job of a killed worker waits for so long.
const LEASE: Duration = Duration::from_secs(1);

/// The jobs without a result, in their order.
const OPEN: &str = "open";
/// The jobs that were begun, as `token job worker`.
const BEGUN: &str = "begun";
/// How often each job was done.
const DONE: &str = "done";

/// A worker. In a normal test run it does nothing.
#[tokio::test]
async fn child() {
    let Some((_, url)) = child::role() else { return };
    let locks = connect(&url, patient()).await;
    let jobs = locks.claims("jobs").with(&renewing(LEASE));
    let mut redis = connection(&url).await;
    println!("begins");
    loop {
        let open: Vec<u64> = redis.zrange(OPEN, 0, 99).await.unwrap();
        let Some(claim) = jobs.claim(open).await.unwrap() else {
            sleep(5 * MS).await;
            continue;
        };
        // Another worker can have done it since this one looked.
        if redis.zscore::<_, _, Option<u64>>(OPEN, claim.name()).await.unwrap().is_some() {
            let begun = format!("{} {} {}", claim.token(), claim.name(), process::id());
            redis.rpush::<_, _, ()>(BEGUN, begun).await.unwrap();
            sleep(10 * MS).await; // the work
            let mut done = redis::pipe();
            done.atomic().hincr(DONE, claim.name(), 1).zrem(OPEN, claim.name());
            done.exec_async(&mut redis).await.unwrap();
        }
        claim.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn killed_workers_cost_no_job_and_repeat_none() {
    let scene = Scene::start();
    let url = scene.server.url();
    for job in 1..=JOBS {
        scene.server.run::<()>(&["ZADD", OPEN, &job.to_string(), &job.to_string()]);
    }
    let start = || {
        let mut worker = Child::start("claims::workers::child", "work", &url);
        worker.read_until("begins");
        worker
    };
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| start()).collect();
    let open = || scene.server.run::<u64>(&["ZCARD", OPEN]);
    let (mut kills, begin) = (0, Instant::now());
    while open() > JOBS / 4 {
        sleep((37 + 11 * (kills % 5)) * MS).await;
        workers.rotate_left(1);
        workers[0].kill();
        workers[0] = start();
        kills += 1;
        assert!(begin.elapsed() < 2 * LIMIT, "{} jobs are open", open());
    }
    eventually("all jobs are done", open, |&open| open == 0).await;
    drop(workers);

    let done: BTreeMap<u64, u32> = scene.server.run(&["HGETALL", DONE]);
    assert!(done.keys().copied().eq(1..=JOBS), "a job was lost: {done:?}");
    assert!(done.values().all(|times| *times == 1), "a job was done twice: {done:?}");
    let begun: Vec<String> = scene.server.run(&["LRANGE", BEGUN, "0", "-1"]);
    let words =
        begun.iter().map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u64>>());
    let by_token: BTreeMap<u64, u64> = words.map(|words| (words[0], words[1])).collect();
    assert_eq!(by_token.len(), begun.len(), "each claim has a token of its own: {begun:?}");
    let (mut last, mut late) = (0, Vec::new());
    for job in by_token.values() {
        if *job < last {
            late.push(*job);
        }
        last = last.max(*job);
    }
    // A job that a killed worker had claimed begins again after its lease.
    assert!(late.len() <= kills as usize, "{late:?} of {kills} kills: {by_token:?}");
    assert!(kills > 3, "{kills}");
    scene.server.run::<()>(&["DEL", BEGUN, DONE]);
    scene.end().await;
}
