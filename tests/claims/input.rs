//! Lists, names and keys that cannot be used: a typed error, and nothing changed.

use lockkeeper::{Claims, Error};

use super::{COUNTER, JOBS, name};
use crate::support::{Scene, soon};

async fn refused(jobs: &Claims, names: &[&str]) -> Error {
    soon(jobs.claim(names)).await.unwrap_err()
}

#[tokio::test]
async fn lists_and_names_that_cannot_be_used_are_refused() {
    let (scene, locks) = Scene::with_client().await;
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
    scene.end((jobs, locks)).await;
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
    scene.end(jobs).await;
}
