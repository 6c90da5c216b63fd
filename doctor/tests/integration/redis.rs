//! A Redis server, well and with each fault.

use std::time::Duration;

use onetap_doctor::{Options, Status};
use onetap_servers::{Backend, Broken, Environment, Redis};
use tokio::time::{sleep, timeout};

use crate::support::tcp::lying_proxy;
use crate::support::{examined, examined_on, faults, only_fault, seen, status, with_functions};

/// Sends a command to a server without a password.
pub(crate) async fn command(redis: &Redis, parts: &[&str]) -> redis::Value {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::Cmd::new();
    for part in parts {
        command.arg(*part);
    }
    command.query_async(&mut connection).await.unwrap()
}

/// A server that got these commands, and the faults that are found on it with this user (`name:password@`).
async fn faults_after(commands: &[&[&str]], user: &str) -> Vec<(String, String, Status)> {
    let redis = Redis::start().await;
    for parts in commands {
        command(&redis, parts).await;
    }
    let url = redis.url().replace("redis://", &format!("redis://{user}"));
    let environment = Environment::on_redis(redis).with("REDIS_URL", url);
    let findings = examined_on(environment.variables()).await;
    faults(&findings)
        .into_iter()
        .map(|(of, check, status)| (of.to_owned(), check.to_owned(), status))
        .collect()
}

fn only(of: &str, check: &str, status: Status) -> [(String, String, Status); 1] {
    [(of.to_owned(), check.to_owned(), status)]
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_good_server_is_found_good_and_left_as_it_was_on_redis() {
    let mut environment = with_functions(Environment::start(Backend::Redis).await);
    let variables = environment.variables().to_vec();
    let redis = environment.redis().unwrap();
    command(redis, &["SET", "theirs", "1"]).await;
    let findings = examined_on(&variables).await;
    assert_eq!(faults(&findings), []);
    for check in ["reachable", "credentials", "clock", "write", "latency", "promises"] {
        assert_eq!(status(&findings, "store", check), Status::Ok, "{findings:#?}");
    }
    for check in ["version", "cluster", "role", "eviction", "publish", "key-locking"] {
        assert_eq!(status(&findings, "redis", check), Status::Ok, "{findings:#?}");
    }
    assert_eq!(command(redis, &["DBSIZE"]).await, redis::Value::Int(1));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_server_that_is_not_there_is_unreachable() {
    let mut environment = Environment::start(Backend::Redis).await;
    environment.redis().unwrap().stop().await;
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("store", "reachable", Status::Wrong)]);
    assert_eq!(status(&findings, "store", "promises"), Status::Skipped);
}

#[tokio::test]
async fn a_server_that_never_answers_is_unreachable_after_a_time_limit() {
    let broken = Broken::accepts_and_never_answers().await;
    let url = format!("redis://{}", broken.addr());
    let findings = examined_on(&[("STORE", "redis".to_owned()), ("REDIS_URL", url)]).await;
    assert_eq!(faults(&findings), [("store", "reachable", Status::Wrong)]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_wrong_password_is_found() {
    let protect: &[&str] = &["CONFIG", "SET", "requirepass", "right-passw0rd"];
    let credentials = only("store", "credentials", Status::Wrong);
    assert_eq!(faults_after(&[protect], ":wrong-passw0rd@").await, credentials);
    assert_eq!(faults_after(&[protect], "").await, credentials);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn eviction_is_a_warning() {
    let evict: &[&str] = &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    assert_eq!(faults_after(&[evict], "").await, only("redis", "eviction", Status::Warning));
}

/// A server with a thousand keys of its user, and this much memory left.
async fn filled(settings: &[&str], megabytes_left: u64) -> Redis {
    let redis = Redis::start_with(settings).await;
    let fill = "for n = 1, 1000 do redis.call('SET', 'theirs:' .. n, string.rep('x', 1000)) end";
    command(&redis, &["EVAL", fill, "0"]).await;
    let redis::Value::BulkString(info) = command(&redis, &["INFO", "memory"]).await else {
        panic!("no INFO")
    };
    let info = String::from_utf8(info).unwrap();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let limit = used.trim().parse::<u64>().unwrap() + (megabytes_left << 20);
    command(&redis, &["CONFIG", "SET", "maxmemory", &limit.to_string()]).await;
    redis
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn nothing_of_a_user_is_evicted() {
    let mut environment = Environment::on_redis(filled(&["--maxmemory-policy", "allkeys-lru"], 4).await);
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("redis", "eviction", Status::Warning)]);
    assert_eq!(seen(&findings, "store", "promises"), "needs redis eviction");
    assert_eq!(command(environment.redis().unwrap(), &["DBSIZE"]).await, redis::Value::Int(1000));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_memory_of_a_server_that_has_little_left_is_not_taken() {
    let mut environment = Environment::on_redis(filled(&[], 20).await);
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), []);
    let promises = seen(&findings, "store", "promises");
    assert!(promises.contains(" MB of the server's memory are left"), "{promises}");
    assert_eq!(command(environment.redis().unwrap(), &["DBSIZE"]).await, redis::Value::Int(1000));
}

/// Waits until promises are checked: then more than one value is there.
pub(crate) async fn promises_are_checked(redis: &Redis) {
    let begun = async {
        while !matches!(command(redis, &["DBSIZE"]).await, redis::Value::Int(3..)) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), begun).await.expect("promises are checked");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_server_whose_memory_fills_up_says_so() {
    let mut environment = Environment::start(Backend::Redis).await;
    let variables = environment.variables().to_vec();
    let set: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let redis = environment.redis().unwrap();
    let fill = async {
        promises_are_checked(redis).await;
        command(redis, &["CONFIG", "SET", "maxmemory", "1"]).await
    };
    let (findings, _) = tokio::join!(examined(&set, Options { seconds: 6, ..Options::default() }), fill);
    let (check, status, seen, remedy) = only_fault(&findings);
    assert_eq!((check, status), ("promises", Status::Warning));
    assert!(seen.contains("could not be checked: the store is unavailable: OOM"), "{seen}");
    assert!(remedy.contains("memory"), "{remedy}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_database_that_is_not_there_is_the_only_fault() {
    let redis = Redis::start().await;
    let url = format!("{}/99", redis.url());
    let environment = Environment::on_redis(redis).with("REDIS_URL", url);
    let (check, status, _, remedy) = only_fault(&examined_on(environment.variables()).await);
    assert_eq!((check, status), ("reachable", Status::Wrong));
    assert!(remedy.contains("number"), "{remedy}");
}

/// What is found where the server says something else.
async fn found_where(old: &'static str, new: &'static str) -> Vec<onetap_doctor::Finding> {
    let redis = Redis::start().await;
    let url = format!("redis://{}", lying_proxy(redis.addr(), old, new));
    let environment = Environment::on_redis(redis).with("REDIS_URL", url);
    examined_on(environment.variables()).await
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_version_that_lacks_a_command_is_the_only_fault() {
    let findings = found_where("redis_version:7", "redis_version:6").await;
    assert_eq!(faults(&findings), [("redis", "version", Status::Wrong)]);
    assert_eq!(seen(&findings, "store", "write"), "needs redis version");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn upstash_over_the_redis_protocol_is_wrong() {
    let findings = found_where("redis_git_sha1:00000000", "upstash_version:1.0.000").await;
    let (check, status, _, remedy) = only_fault(&findings);
    assert_eq!((check, status), ("version", Status::Wrong));
    assert!(remedy.contains("STORE=upstash"), "{remedy}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_clock_that_is_off_is_a_warning() {
    let findings = found_where("*2\r\n$10\r\n1", "*2\r\n$10\r\n2").await;
    assert_eq!(faults(&findings), [("store", "clock", Status::Warning)]);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_replica_is_wrong() {
    let follow: &[&str] = &["REPLICAOF", "127.0.0.1", "1"];
    assert_eq!(faults_after(&[follow], "").await, only("redis", "role", Status::Wrong));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_cluster_is_wrong() {
    let redis = Redis::start_with(&["--cluster-enabled", "yes"]).await;
    let environment = Environment::on_redis(redis);
    let findings = examined_on(environment.variables()).await;
    assert_eq!(faults(&findings), [("redis", "cluster", Status::Wrong)]);
}

/// The faults that are found with a user of these rights.
async fn faults_of_user(rights: &[&str]) -> Vec<(String, String, Status)> {
    let user: Vec<&str> =
        ["ACL", "SETUSER", "s3cret-user", "on", ">s3cret-word"].iter().chain(rights).copied().collect();
    faults_after(&[&user], "s3cret-user:s3cret-word@").await
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_user_that_may_not_publish_is_wrong() {
    let rights = ["~*", "&*", "+@all", "-publish"];
    assert_eq!(faults_of_user(&rights).await, only("redis", "publish", Status::Wrong));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_user_that_may_not_publish_everywhere_is_a_warning() {
    let rights = ["~*", "+@all", "resetchannels", "&scan:events:*"];
    assert_eq!(faults_of_user(&rights).await, only("redis", "publish", Status::Warning));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_user_that_may_only_read_is_wrong() {
    let write = only("store", "write", Status::Wrong);
    assert_eq!(faults_of_user(&["%R~*", "&*", "+@all"]).await, write);
    // As Upstash's read-only token, which runs no script.
    assert_eq!(faults_of_user(&["~*", "&*", "+@read", "+@connection", "+info", "+time"]).await, write);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_user_that_may_not_run_scripts_is_told_so() {
    let redis = Redis::start().await;
    command(&redis, &["ACL", "SETUSER", "default", "-eval", "-evalsha"]).await;
    let environment = Environment::on_redis(redis);
    let (check, status, _, remedy) = only_fault(&examined_on(environment.variables()).await);
    assert_eq!((check, status), ("write", Status::Wrong));
    assert!(remedy.contains("+eval +evalsha"), "{remedy}");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_user_that_may_use_only_the_functions_keys_is_not_wrong() {
    let rights = ["~idem:*", "~processing:*", "~user:*", "~weather:*", "&*", "+@all"];
    assert_eq!(faults_of_user(&rights).await, []);
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn what_a_user_may_not_look_at_is_skipped() {
    assert_eq!(faults_of_user(&["~*", "&*", "+@all", "-info", "-time", "-ping"]).await, []);
}

#[tokio::test]
async fn an_address_that_the_store_refuses_is_the_only_fault() {
    let url = "rediss://127.0.0.1:1#insecure".to_owned();
    let findings = examined_on(&[("STORE", "redis".to_owned()), ("REDIS_URL", url)]).await;
    assert_eq!(faults(&findings), [("store", "variables", Status::Wrong)]);
    assert_eq!(status(&findings, "store", "promises"), Status::Skipped);
}
