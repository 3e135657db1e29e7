//! Credentials that change while locks are held and waiters wait.

use std::collections::BTreeSet;

use crate::support::events::Events;
use crate::support::{SECOND, Scene, eventually, patient, renewed, soon, waiter};
use lockkeeper::{Credentials, Error, LockClient, Source};
use tokio::net::TcpStream;

/// The rights that docs/deploy.md grants for every lock.
const FEWEST: &str = "~shop:* &redisson_lock__channel:* +evalsha +eval +hello +ping +select +exists \
                      +hdel +hexists +hget +hrandfield +hscan +hset +persist +pexpire +pttl +publish +subscribe \
                      +unsubscribe +time +client|tracking";

fn add_user(scene: &Scene, name: &str, password: &str) {
    let password = format!(">{password}");
    let rule: Vec<&str> =
        ["ACL", "SETUSER", name, "reset", "on", &password].into_iter().chain(FEWEST.split(' ')).collect();
    scene.server.run::<()>(&rule);
}

/// The users and the ids of all connections, except those of the test.
fn connections(scene: &Scene) -> BTreeSet<(String, String)> {
    let fact = |line: &str, name: &str| {
        line.split(' ').find_map(|fact| fact.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let all = scene.server.clients().into_iter().map(|line| (fact(&line, "user="), fact(&line, "id=")));
    all.filter(|(user, _)| user != "default").collect()
}

async fn client(source: Source, credentials: &Credentials) -> LockClient {
    let source = source.with_credentials(credentials);
    let config = patient().watchdog_lease(3 * SECOND).name_prefix("shop:").build().unwrap();
    soon(LockClient::connect_with(source, config)).await.unwrap()
}

#[tokio::test]
async fn new_credentials_reach_every_connection_while_locks_are_held_and_waiters_wait() {
    let scene = Scene::start();
    let source = Source::url(scene.server.url());
    new_credentials_reach_every_connection(scene, source).await;
}

fn streams(scene: &Scene) -> Source {
    let port = scene.server.port();
    Source::stream(move || async move {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true).map(|()| stream)
    })
}

async fn new_credentials_reach_every_connection(scene: Scene, source: Source) {
    add_user(&scene, "old", "first");
    add_user(&scene, "new", "second");
    let credentials = Credentials::new("old", "first");
    let locks = client(source, &credentials).await;
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.rlock(name).lock().await.unwrap()); // over both connections
    }
    let waiting = waiter(locks.rlock("0"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| !channels.is_empty()).await;
    let before = connections(&scene);
    assert!((3..=4).contains(&before.len()) && before.iter().all(|(user, _)| user == "old"), "{before:?}");

    credentials.set("new", "second");
    let is_new =
        |now: &BTreeSet<(String, String)>| now.len() >= 3 && now.iter().all(|(user, _)| user == "new");
    let after = eventually("every connection has the new user", || connections(&scene), is_new).await;
    let kept = after.iter().filter(|(_, id)| before.iter().any(|(_, other)| other == id)).count();
    assert!(kept >= 2, "the connections for commands stay open: {before:?}, {after:?}");
    scene.server.run::<()>(&["ACL", "DELUSER", "old"]); // ends its connections
    eventually("the waiter is subscribed again", || scene.server.channels(), |channels| !channels.is_empty())
        .await;

    for guard in &guards {
        renewed(guard).await;
    }
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    soon(waiting).await.unwrap().unlock().await.unwrap();
    // A connection that breaks is replaced by one with the new credentials.
    scene.disconnect().await;
    locks.rlock("0").lock().await.unwrap().unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    scene.end(locks).await;
}

#[tokio::test]
async fn a_refusal_of_new_credentials_is_reported_and_ends_nothing() {
    let scene = Scene::start();
    let events = Events::default();
    let _collecting = events.collect();
    add_user(&scene, "app", "right");
    let credentials = Credentials::new("app", "right");
    let locks = client(Source::url(scene.server.url()), &credentials).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    credentials.set("app", "mistaken");
    events.tell("the server refuses the new credentials").await;
    assert!(!format!("{} {credentials:?}", events.text()).contains("mistaken"), "{}", events.text());
    renewed(&guard).await;
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    scene.end(locks).await;
}

#[tokio::test]
async fn an_empty_user_is_the_default_user_whichever_user_the_url_names() {
    let scene = Scene::start();
    add_user(&scene, "bob", "x");
    let url = scene.server.url().replace("redis://", "redis://bob:x@");
    // The default user of this server accepts every password.
    let locks = client(Source::url(url), &Credentials::new("", "any")).await;
    locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    assert!(connections(&scene).is_empty(), "a connection has another user");
    locks.shutdown().await.unwrap();
    scene.end(locks).await;
}

#[tokio::test]
async fn credentials_do_not_fit_a_pool() {
    let scene = Scene::start();
    let pool = deadpool_redis::Config::from_url(scene.server.url())
        .create_pool(Some(deadpool_redis::Runtime::Tokio1))
        .unwrap();
    let source = Source::from(pool).with_credentials(&Credentials::new("app", "right"));
    let error = LockClient::connect(source).await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    scene.end(()).await;
}

/// Sources of every kind, in code and from a file.
#[tokio::test]
async fn sources_of_every_kind_connect() {
    let scene = Scene::start();
    let url = scene.server.url();
    let file = format!("kind = \"single\"\nurls = [\"{url}\"]");
    let config = deadpool_redis::Config::from_url(&url);
    let pooled = deadpool_redis::Config { pool: Some(deadpool_redis::PoolConfig::new(2)), ..config.clone() };
    let sources =
        [Source::url(&url), config.into(), pooled.into(), streams(&scene), toml::from_str(&file).unwrap()];
    for source in sources {
        let locks = LockClient::connect_with(source, patient().build().unwrap()).await.unwrap();
        locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
        locks.shutdown().await.unwrap();
    }
    for (file, problem) in [
        ("urls = []", "must be one address"),
        ("urls = [\"a\", \"b\"]", "must be one address"),
        ("urls = [\"a\"]\nkind = \"many\"", "many"),
        ("urls = [\"a\"]\nurl = \"a\"", "url"),
    ] {
        let error = toml::from_str::<Source>(file).unwrap_err();
        assert!(error.to_string().contains(problem), "{file}: {error}");
    }
    scene.end(()).await;
}
