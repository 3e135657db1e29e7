//! Invalid input is a clear typed error, and changes nothing on the server.

use std::time::Duration;

use crate::support::events::Events;
use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{MS, Proxy, SECOND, Scene, Server, connect, eventually, patient, soon, timed, waiter};
use lockkeeper::leader::{Candidate, LeaderWatch};
use lockkeeper::{BaseLock, Error, Lock, LockClient, LockConfig, MultiLock, RedLock, Result};

#[tokio::test]
async fn names_that_cannot_be_used() {
    let (scene, locks) = Scene::with_client().await;
    let before = scene.server.calls("evalsha");
    // A grant of the write lock of `a` would delete it.
    let intent = locks.rlock("{a}:lockkeeper_intent").lock().await;
    assert!(matches!(intent, Err(Error::InvalidName { .. })), "{intent:?}");
    assert_eq!(scene.server.calls("evalsha"), before, "nothing was sent");

    // Everything else is a valid name.
    for name in ["ä ö", "a:b", "{a}b", "a\0b", "a\r\nb", &"x".repeat(10_000)] {
        locks.rlock(name).lock().await.unwrap().unlock().await.unwrap();
    }
    scene.end(locks).await;
}

/// One rule for all handles: making one never fails and asks no server. A name or a number of permits that cannot be used is the error of each
/// call that would ask the server, and nothing is sent.
#[tokio::test]
async fn an_unusable_name_is_the_error_of_each_call_of_each_handle() {
    #[track_caller]
    fn are_refused(handle: &str, results: impl IntoIterator<Item = Result<()>>) {
        for (call, result) in results.into_iter().enumerate() {
            assert!(matches!(result, Err(Error::InvalidName { .. })), "{handle}, call {call}: {result:?}");
        }
    }
    async fn lock(mut lock: Lock<'_, impl BaseLock>, handle: &str) {
        let results = [
            lock.lock().await.map(drop),
            lock.try_lock().await.map(drop),
            lock.try_lock_for(SECOND).await.map(drop),
            lock.run(async {}).await,
            lock.try_run(async {}).await.map(drop),
            lock.try_run_for(SECOND, async {}).await.map(drop),
            lock.check().await,
            lock.is_locked().await.map(drop),
            lock.remaining_lease().await.map(drop),
            lock.force_unlock().await.map(drop),
        ];
        are_refused(handle, results);
        assert_eq!((lock.name(), lock.is_held(), lock.hold_count()), ("", false, 0), "{handle}");
    }
    let (scene, locks) = Scene::with_client().await;
    let mut me = locks.owner();
    let before = scene.server.calls("evalsha");
    lock(locks.rlock(""), "rlock").await;
    lock(locks.fair_lock(""), "fair").await;
    lock(locks.fenced_lock(""), "fenced").await;
    lock(locks.read_write_lock("").into_read(), "read").await;
    lock(locks.read_write_lock("").into_write(), "write").await;
    lock(MultiLock::new([locks.rlock("")]).unwrap(), "multi").await;
    lock(RedLock::new([locks.rlock("")]).unwrap(), "red").await;
    lock(me.rlock(""), "lent").await;
    are_refused("fenced", [locks.fenced_lock("").run_with_token(async |_| ()).await]);

    let semaphore = locks.semaphore("", 1);
    let results = [
        semaphore.acquire().await.map(drop),
        semaphore.try_acquire().await.map(drop),
        semaphore.try_acquire_for(SECOND).await.map(drop),
        semaphore.run(async {}).await,
        semaphore.check().await,
        semaphore.available_permits().await.map(drop),
        semaphore.total().await.map(drop),
        semaphore.resize(1).await,
        semaphore.delete().await.map(drop),
    ];
    are_refused("semaphore", results);
    let empty = locks.semaphore("a", 0);
    let results = [
        empty.acquire().await.map(drop),
        empty.acquire_many(1).await.map(drop),
        empty.try_acquire().await.map(drop),
        empty.try_acquire_for(SECOND).await.map(drop),
        empty.run(async {}).await,
        empty.resize(0).await,
    ];
    for result in results {
        assert!(matches!(result, Err(Error::InvalidPermits { .. })), "{result:?}");
    }

    are_refused("claims", [locks.claims("").claim([1]).await.map(drop), locks.claims("").check().await]);
    are_refused("candidate", [Candidate::new(&locks, "").run(async |_| ()).await]);
    are_refused("watch", [LeaderWatch::new(&locks, "").changed().await.map(drop)]);
    are_refused("client", [locks.inspect("").await.map(drop), locks.why("").await.map(drop)]);
    assert_eq!(scene.server.calls("evalsha"), before, "nothing was sent");
    scene.end((semaphore, empty, me, locks)).await;
}

#[tokio::test]
async fn durations_that_cannot_be_used() {
    let (scene, locks) = Scene::with_client().await;
    let before = scene.server.calls("evalsha");
    let error = locks.rlock("a").try_lock_for(Duration::MAX).await.unwrap_err();
    assert!(matches!(error, Error::InvalidDuration { argument: "wait", .. }), "{error}");
    assert_eq!(scene.server.calls("evalsha"), before, "nothing was sent");

    let guard = locks.rlock("a").try_lock_for(Duration::ZERO).await.unwrap().expect("the lock is free");
    let error = guard.extend(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::InvalidDuration { argument: "lease", .. }), "{error}");
    guard.unlock().await.unwrap();
    scene.end(locks).await;
}

#[tokio::test]
async fn settings_and_addresses_that_cannot_be_used() {
    let scene = Scene::start();
    for url in [
        "",
        "nonsense",
        "http://127.0.0.1/",
        "redis://",
        "redis://127.0.0.1:99999999/",
        "redis://127.0.0.1/x",
    ] {
        let error = LockClient::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Config(ref wrong) if wrong.field() == "url"), "{url:?}: {error:?}");
        assert!(!error.is_transient());
    }
    let both = deadpool_redis::Config {
        url: Some(scene.server.url()),
        connection: Some(deadpool_redis::ConnectionInfo::default()),
        pool: None,
    };
    let error = LockClient::connect(both).await.unwrap_err();
    assert!(matches!(error, Error::Config(ref wrong) if wrong.field() == "url"), "{error:?}");
    let error = LockConfig::builder().connections(0).build().unwrap_err();
    assert!(error.field() == "connections", "{error:?}");
    let error = LockConfig::builder().watchdog_lease(Duration::ZERO).build().unwrap_err();
    assert!(error.field() == "watchdog_lease", "{error:?}");

    let locks = LockClient::connect(deadpool_redis::Config::from_url(scene.server.url())).await.unwrap();
    locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    scene.end(locks).await;
}

#[tokio::test]
async fn credentials_that_are_refused() {
    let scene = Scene::with(Server::start());
    scene.user("~shop:* ~redisson_* &* +@all");
    let url = |who: &str| format!("redis://{who}@127.0.0.1:{}/", scene.server.port());
    for who in ["u:wrong", "nobody:secret", ":wrong"] {
        let error = LockClient::connect_with(url(who), patient().build().unwrap()).await.unwrap_err();
        assert!(matches!(error, Error::Authentication(_)) && !error.is_transient(), "{who}: {error:?}");
        assert!(!format!("{error:?} {error}").contains("wrong"), "{error:?} contains the password");
    }
    // The credentials change while the client is in use.
    let locks = connect(url("u:secret"), patient()).await;
    locks.rlock("shop:a").lock().await.unwrap().unlock().await.unwrap();
    let error = locks.rlock("other").lock().await.unwrap_err();
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
    scene.user("resetpass >changed");
    let _: u32 = scene.server.run(&["CLIENT", "KILL", "USER", "u"]);
    let error = locks.rlock("shop:a").lock().await.unwrap_err();
    assert!(matches!(error, Error::Authentication(_)), "{error:?}");
    scene.end(locks).await;
}

/// An error contains the lock, the key, the server and the cause, and no password.
#[tokio::test]
async fn an_error_names_the_lock_the_key_the_server_and_the_cause() {
    let scene = Scene::start();
    let url = scene.user("~shop:* ~redisson_* &* +@all -hset");
    let locks = connect(url, patient().name_prefix("shop:")).await;
    let refused = locks.rlock("orders").lock().await.unwrap_err();
    scene.server.run::<()>(&["SET", "shop:orders", "x"]);
    let other = locks.rlock("orders").lock().await.unwrap_err();
    scene.server.run::<()>(&["DEL", "shop:orders"]);
    scene.user("+hset");
    let guard = locks.rlock("orders").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "shop:orders"]);
    let gone = guard.unlock().await.unwrap_err();
    for (error, cause) in [(refused, "@user_script"), (other, "in use as a string"), (gone, "no longer held")]
    {
        let text = error.to_string();
        for part in ["`orders`", "`shop:orders`", &format!("127.0.0.1:{}", scene.server.port()), cause] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!format!("{text} {error:?}").contains("secret"), "{text}");
    }
    scene.end(locks).await;
}

/// `check` finds a missing permission at start, before the first release needs it.
async fn check_finds_a_missing_permission<F: Fixture>() {
    let scene = Scene::start();
    let locks = connect(scene.user("~* &* +@all"), patient()).await;
    let lock = F::lock(&locks, "a");
    lock.check().await.unwrap();
    scene.user("-publish -hdel");
    let error = lock.check().await.unwrap_err();
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
    for part in ["`hdel` on `a`", "`publish` on `redisson_"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    scene.user("+@all resetkeys ~shop:*");
    assert!(matches!(lock.check().await, Err(Error::Permission(_))));
    assert_eq!(scene.server.keys(), [""; 0], "nothing was changed");
    scene.end((lock, locks)).await;
}

/// Guarantee 17. A process that starts before its server.
#[tokio::test]
async fn connect_waits_for_the_server_up_to_start_timeout() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    let connecting = tokio::spawn(LockClient::connect_with(
        url.clone(),
        patient().start_timeout(20 * SECOND).build().unwrap(),
    ));
    let short = LockConfig::builder().start_timeout(300 * MS).build().unwrap();
    let (refused, took) = timed(LockClient::connect_with(url, short)).await;
    assert!(matches!(refused, Err(Error::Unreachable(_))) && took < 10 * SECOND, "{took:?}");
    assert!(!connecting.is_finished());
    server.start_again();
    let locks = soon(connecting).await.unwrap().unwrap();
    locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
}

/// Guarantee 18. Tries of one outage are one event in ten seconds.
#[tokio::test]
async fn a_server_that_cannot_be_reached_yet_is_reported_once() {
    let (events, mut server) = (Events::default(), Server::start());
    let _collecting = events.collect();
    let url = server.url();
    server.kill();
    let config = LockConfig::builder().start_timeout(2 * SECOND).build().unwrap();
    let refused = soon(LockClient::connect_with(url, config)).await;
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    let text = events.text();
    assert_eq!(text.matches("cannot connect yet").count(), 1, "{text}");
}

/// Guarantee 10. New users have no access to channels by default. Locks work, and waiters poll.
#[tokio::test]
async fn a_user_who_may_not_publish() {
    let scene = Scene::start();
    let locks = connect(scene.user("~* resetchannels +@all"), patient()).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = waiter(locks.rlock("a"));
    guard.unlock().await.expect("the lock was released");
    soon(waiting).await.unwrap().unlock().await.unwrap();
    let guard = locks.rlock("a").lock().await.unwrap();
    assert!(locks.rlock("a").force_unlock().await.unwrap());
    scene.end((guard, locks)).await;
}

/// A user who may not read the queue of a fair lock can still release it: the lock becomes free, and the waiters
/// notice by themselves.
#[tokio::test]
async fn a_user_who_may_not_look_into_a_queue() {
    let scene = Scene::start();
    let url = scene.user("~* &* +@all -lindex");
    let (locks, beside) = (connect(url, patient()).await, scene.client().await);
    let guard = locks.fair_lock("a").lock().await.expect("the queue is empty, so it is not read");
    let waiting = tokio::spawn(async move { beside.fair_lock("a").lock().await.unwrap().unlock().await });
    eventually(
        "the waiter queues",
        || scene.server.run::<u32>(&["EXISTS", "redisson_lock_queue:{a}"]),
        |&n| n == 1,
    )
    .await;
    guard.unlock().await.expect("the lock was released");
    soon(waiting).await.unwrap().unwrap();
    scene.end(locks).await;
}

/// Whatever permission is missing: a refused acquire leaves the lock as it was, and no acquire leaves a lock without
/// expiry. This holds also when other owners hold the lock.
async fn a_user_with_a_missing_permission_leaves_no_lock_without_expiry<F: Fixture>() {
    const RIGHTS: &str = "del exists get hdel hexists hget hgetall hlen hmget hrandfield hset incr lindex lpop lrem \
                          persist pexpire pttl publish rpush set zadd zcard zrange zrank zrem zscore";
    let scene = Scene::start();
    let admin = scene.client().await;
    let mut refused = 0;
    for right in RIGHTS.split_whitespace() {
        let url = scene.user(&format!("~* &* +@all -{right}"));
        let locks = connect(url, patient().watchdog_lease(300 * MS)).await;
        let beside = if F::IS_SHARED { Some(F::lock(&admin, "a").lock().await.unwrap()) } else { None };
        let mut lock = F::lock(&locks, "a");
        match lock.lock().await {
            Ok(guard) => {
                drop(lock.lock().await);
                assert_ne!(scene.server.run::<i64>(&["PTTL", "a"]), -1, "without {right}");
                drop(guard);
            }
            Err(error) => {
                assert!(matches!(error, Error::Permission(_)), "without {right}: {error:?}");
                assert!(!error.outcome_unknown());
                let holders = admin.inspect("a").await.unwrap().map_or(0, |found| found.holders.len());
                assert_eq!(holders, usize::from(F::IS_SHARED), "without {right}");
                refused += 1;
            }
        }
        drop((lock, locks, beside));
        soon(F::rival(&admin, "a").lock()).await.unwrap().unlock().await.unwrap();
    }
    assert!(refused >= 3, "{refused}"); // at least hset, pexpire and pttl
    scene.server.run::<()>(&["FLUSHALL"]); // the queue of a fair lock stays for minutes
    scene.end(admin).await;
}

/// A new server behind a proxy that changes the version in its reply to an older one.
#[tokio::test]
async fn a_server_that_is_too_old() {
    let scene = Scene::start();
    let info: String = scene.server.run(&["INFO", "server"]);
    // Valkey also reports itself as Redis 7.2.
    let version = ["valkey_version:", "redis_version:"];
    let version =
        version.iter().find_map(|key| info.lines().find_map(|line| line.strip_prefix(key))).unwrap();
    let older = format!("6{}", &version[1..]);
    let proxy = Proxy::to(scene.server.port()).await;
    proxy.doctor(version, &older);
    let error = LockClient::connect_with(proxy.url(), patient().build().unwrap()).await.unwrap_err();
    assert!(matches!(&error, Error::UnsupportedServer { version, .. } if *version == older), "{error:?}");
    assert!(error.to_string().contains("Redis 7.0, Valkey 7.2 or newer"), "{error}");
    scene.end(proxy).await;

    // Servers before version 6 do not know `HELLO`.
    let scene = Scene::with(Server::with(&["--rename-command", "HELLO", ""]));
    let error = LockClient::connect_with(scene.server.url(), patient().build().unwrap()).await.unwrap_err();
    assert!(
        matches!(&error, Error::UnsupportedServer { version, .. } if version == "an unknown version"),
        "{error:?}"
    );
    scene.end(()).await;
}

for_each_lock! {
    check_finds_a_missing_permission
    a_user_with_a_missing_permission_leaves_no_lock_without_expiry
}
