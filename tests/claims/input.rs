//! Lists, names and keys that cannot be used: a typed error, and nothing changed.

use lockkeeper::{Claims, Error};

use super::{COUNTER, JOBS, claim, name};
use crate::support::{Scene, soon};

async fn refused(jobs: &Claims, names: &[&str]) -> Error {
    soon(jobs.claim(names)).await.unwrap_err()
}

#[tokio::test]
async fn lists_and_names_that_cannot_be_used_are_refused() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let (jobs, before) = (locks.claims("jobs"), scene.server.scripts());
    assert!(jobs.claim([""; 0]).await.unwrap().is_none(), "of no names, none is free");
    let problem = |error| match error {
        Error::InvalidName { name, problem, .. } => (name, problem),
        error => panic!("{error:?}"),
    };
    for (group, names, wrong, why) in [
        ("jobs", ["1", "2", "1"], "1", "it is in the list twice"),
        ("jobs", ["1", "", "2"], "", "it is empty"),
        (
            "jobs",
            ["1", "2", "3:lockkeeper_intent"],
            "3:lockkeeper_intent",
            "stops the readers of another lock",
        ),
        ("", JOBS, "", "it is empty"),
        ("a{b", JOBS, "a{b", "has no braces"),
        ("a}:b", JOBS, "a}:b", "has no braces"),
    ] {
        let (name, problem) = problem(refused(&locks.claims(group), &names).await);
        assert!(name == wrong && problem.contains(why), "{group:?} {names:?}: {name:?} {problem}");
    }
    let many: Vec<u32> = (0..101).collect();
    let error = jobs.claim(&many).await.unwrap_err();
    assert!(matches!(&error, Error::Config(config) if config.field() == "names"), "{error:?}");
    assert_eq!(
        error.to_string(),
        "invalid configuration: `names` must be at most 100 in one call, and are 101"
    );
    assert_eq!((scene.server.scripts(), scene.server.keys()), (before, vec![]), "nothing was sent");
    for names in [["a}b{c", "{x}"], ["ü 1", "\n"], ["jobs", "{jobs}"]] {
        assert_eq!(soon(jobs.claim(names)).await.unwrap().unwrap().name(), names[0]);
    }
    drop((jobs, locks));
    scene.end().await;
}

/// Guarantee 5. Wherever the key stands in the list.
#[tokio::test]
async fn a_key_with_other_data_is_an_error_and_nothing_is_claimed() {
    let scene = Scene::start();
    let jobs = scene.client().await.claims("jobs");
    let data: [&[&str]; 4] = [
        &["SET", "{jobs}:2", "1"],
        &["RPUSH", "{jobs}:2", "a"],
        &["HSET", "{jobs}:2", "field", "value"],
        &["HSET", "{jobs}:2", "8743c9c0-0795-4907-87fd-6c719a6b4586:1:x", "1"],
    ];
    for data in data {
        scene.server.run::<()>(data);
        for names in [["2", "1", "3"], ["1", "2", "3"], ["3", "1", "2"]] {
            let error = refused(&jobs, &names).await;
            let is_told = |error: &Error| {
                matches!(error, Error::WrongKind { lock, found, .. }
                    if lock.name == "2" && lock.key == "{jobs}:2" && *found == "data that is no lock")
            };
            assert!(is_told(&error), "{data:?} in {names:?}: {error:?}");
        }
        assert_eq!(scene.server.keys(), ["{jobs}:2"], "{data:?}");
        assert!(!scene.server.run::<bool>(&["EXISTS", COUNTER]), "{data:?}");
        assert_eq!(scene.server.run::<i64>(&["PTTL", "{jobs}:2"]), -1, "{data:?}");
        scene.server.run::<()>(&["DEL", "{jobs}:2"]);
    }
    assert_eq!(name(&jobs).await, "1");
    drop(jobs);
    scene.end().await;
}

/// Guarantee 5. It becomes free, so it is no error.
#[tokio::test]
async fn a_name_that_is_in_use_as_another_kind_of_lock_is_not_free() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let jobs = locks.claims("jobs");
    let mut lock = locks.read_write_lock("{jobs}:1");
    // A script looks at one field of several, whichever it finds.
    let writing = lock.write().lock().await.unwrap();
    for _ in 0..20 {
        assert_eq!(name(&jobs).await, "2");
        scene.server.run::<()>(&["DEL", "{jobs}:2"]);
    }
    writing.unlock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    for _ in 0..20 {
        assert_eq!(name(&jobs).await, "2");
        scene.server.run::<()>(&["DEL", "{jobs}:2"]);
    }
    reading.unlock().await.unwrap();
    let fenced = locks.fenced_lock("{jobs}:1").lock().await.unwrap();
    let fair = locks.fair_lock("{jobs}:2").lock().await.unwrap();
    assert_eq!(name(&jobs).await, "3");
    drop((lock, fenced, fair, jobs, locks));
    scene.end().await;
}

/// Without a token, no name is claimed.
#[tokio::test]
async fn a_counter_that_cannot_count_claims_nothing() {
    let scene = Scene::start();
    let jobs = scene.client().await.claims("jobs");
    let full = i64::MAX.to_string();
    let broken: [&[&str]; 3] =
        [&["SET", COUNTER, "a word"], &["SET", COUNTER, &full], &["RPUSH", COUNTER, "1"]];
    for broken in broken {
        scene.server.run::<()>(&["DEL", COUNTER]);
        scene.server.run::<()>(broken);
        let error = refused(&jobs, &JOBS).await;
        assert!(
            matches!(&error, Error::WrongKind { lock, .. } if lock.key == COUNTER && lock.name == "jobs"),
            "{broken:?}: {error:?}"
        );
        assert_eq!(scene.server.keys(), [""; 0], "{broken:?}");
    }
    scene.server.run::<()>(&["SET", COUNTER, "7"]);
    let first = claim(&jobs).await.unwrap().token().get();
    assert!(first > 1_000_000_000_000_000, "it continues from the server's clock: {first}");
    // Only another program can put the counter ahead of the clock. These numbers are too large for Lua.
    scene.server.run::<()>(&["SET", COUNTER, "9100000000000000001"]);
    scene.quiet().await;
    assert_eq!(claim(&jobs).await.unwrap().token().get(), 9_100_000_000_000_000_002);
    drop(jobs);
    scene.end().await;
}
