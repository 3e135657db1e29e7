//! What a source with sentinels can be, and what it cannot be.

use lockkeeper::{Credentials, Error, LockClient, Source};
use lockkeeper_testkit::{MASTER, Sentinels, Server};

use crate::sentinel::end;
use crate::support::{SECOND, eventually, listens, patient, renewed, replicated, soon, waiter};

async fn refusal(source: Source) -> (&'static str, String) {
    match LockClient::connect(source).await {
        Err(Error::Config(wrong)) => (wrong.field(), wrong.problem().to_owned()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_source_that_cannot_be_used_is_invalid() {
    let none: [&str; 0] = [];
    let url = "redis://127.0.0.1/";
    for (source, field) in [
        (Source::sentinel("", [url], url), "master"),
        (Source::sentinel(MASTER, none, url), "sentinels"),
        (Source::sentinel(MASTER, ["nonsense"], url), "sentinels"),
        (Source::sentinel(MASTER, [url], "nonsense"), "url"),
    ] {
        let (found, problem) = refusal(source).await;
        assert_eq!(found, field, "{problem}");
    }
    for (file, field) in [
        ("urls = [\"a\"]\nmaster = \"a\"", "master"),
        ("urls = [\"a\"]\nsentinels = [\"a\"]", "sentinels"),
        ("kind = \"sentinel\"\nurls = [\"a\"]\nsentinels = [\"a\"]", "master"),
        ("kind = \"sentinel\"\nurls = [\"a\"]\nmaster = \"a\"", "sentinels"),
        ("kind = \"sentinel\"\nurls = []\nmaster = \"a\"\nsentinels = [\"a\"]", "urls"),
    ] {
        let error = toml::from_str::<Source>(file).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}`")), "{file}: {error}");
    }
}

#[tokio::test]
async fn sentinels_that_do_not_know_the_master_and_servers_that_are_no_sentinels() {
    let group = Sentinels::start(SECOND);
    let (field, problem) = refusal(Source::sentinel("other", group.urls(), "redis://servers/")).await;
    assert!(field == "master" && problem.contains("`other`"), "{field} {problem}");
    let servers = group.servers.iter().map(Server::url);
    let (field, problem) = refusal(Source::sentinel(MASTER, servers, "redis://servers/")).await;
    assert_eq!(field, "sentinels", "{problem}");
}

/// Every connection has the user that belongs to it: those to sentinels, for commands and for messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_have_users_of_their_own() {
    let mut group = Sentinels::start(SECOND);
    let add = |servers: &[Server], user: &str, rights: &[&str]| {
        for server in servers {
            server.run::<()>(&[&["ACL", "SETUSER", user, "on", ">secret"], rights].concat());
        }
    };
    // What docs/deploy.md names.
    add(
        &group.sentinels,
        "asker",
        &["&*", "+sentinel|master", "+sentinel|replicas", "+subscribe", "+hello", "+ping"],
    );
    add(&group.servers, "old", &["~*", "&*", "+@all"]);
    add(&group.servers, "new", &["~*", "&*", "+@all"]);
    let users = |server: &Server| {
        let clients = server.clients();
        let user = |line: &String| {
            line.split(' ')
                .find_map(|fact| fact.strip_prefix("user="))
                .map(str::to_owned)
                .filter(|user| user != "default")
        };
        clients.iter().filter_map(user).collect::<Vec<_>>()
    };

    let credentials = Credentials::new("old", "secret");
    let sentinels =
        group.sentinels.iter().map(|server| format!("redis://asker:secret@127.0.0.1:{}/", server.port()));
    let file = format!(
        "kind = \"sentinel\"\nmaster = \"{MASTER}\"\nsentinels = {:?}\nurls = [\"redis://servers/\"]",
        sentinels.collect::<Vec<_>>()
    );
    let source = toml::from_str::<Source>(&file).unwrap().with_credentials(&credentials);
    // The failover of a busy machine takes seconds, and the lock has to outlive it.
    let config = patient().watchdog_lease(15 * SECOND).retry_timeout(60 * SECOND).build().unwrap();
    let locks = LockClient::connect_with(source, config).await.unwrap();
    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = waiter(locks.rlock("a"));
    let master = group.master();
    listens(&group.servers[master]).await;
    assert!(group.sentinels.iter().all(|sentinel| users(sentinel).contains(&"asker".to_owned())));
    assert!(users(&group.servers[master]).iter().all(|user| user == "old"));

    credentials.set("new", "secret");
    let is_new = |found: &Vec<String>| found.len() >= 2 && found.iter().all(|user| user == "new");
    eventually("every connection has the new user", || users(&group.servers[master]), is_new).await;
    renewed(&guard).await;
    replicated(&group.servers[master], 2).await;
    let before = group.lose_master();
    let after = group.switched(before);
    renewed(&guard).await;
    eventually("also on the new master", || users(&group.servers[after]), is_new).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    end(&group.servers[after], [&locks]).await;
}
