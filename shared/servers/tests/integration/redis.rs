//! The server of a test's own, and what can be done to it.

use std::process::{Command, Stdio};
use std::time::Duration;

use onetap_servers::Redis;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

async fn connect(server: &Redis) -> redis::RedisResult<MultiplexedConnection> {
    redis::Client::open(server.url())?.get_multiplexed_async_connection().await
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_restarted_server_is_empty_and_has_the_same_port() {
    let mut server = Redis::start().await;
    let url = server.url();
    let _: () = connect(&server).await.unwrap().set("k", "v").await.unwrap();
    server.stop().await;
    assert!(connect(&server).await.is_err());
    server.restart().await;
    assert_eq!(server.url(), url);
    assert!(!connect(&server).await.unwrap().exists::<_, bool>("k").await.unwrap());
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_paused_server_answers_when_resumed() {
    let server = Redis::start().await;
    let mut connection = connect(&server).await.unwrap();
    server.pause();
    let mut echo = redis::cmd("ECHO");
    let mut answer = Box::pin(echo.arg("late").query_async::<String>(&mut connection));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut answer).await.is_err());
    server.resume();
    assert_eq!(answer.await.unwrap(), "late");
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_monitor_sees_what_clients_send_and_not_what_scripts_do() {
    let server = Redis::start().await;
    let mut monitor = server.monitor().await;
    let mut connection = connect(&server).await.unwrap();
    let _: () = connection.set("k", "v\n[0 lua] \"GET\"").await.unwrap();
    let script = "return redis.call('GET', KEYS[1])";
    let _: String =
        redis::cmd("EVAL").arg(script).arg(1).arg("k").query_async(&mut connection).await.unwrap();
    assert_eq!(monitor.top_level_commands().await, ["SET", "EVAL"]);
    assert!(monitor.top_level_commands().await.is_empty());
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn a_server_dies_with_a_test_that_is_killed() {
    // The killed test is this very test, run in a process of its own, where this variable is set.
    const TELL_URL_TO: &str = "TELL_URL_TO";
    if let Some(file) = std::env::var_os(TELL_URL_TO) {
        let server = Redis::start().await;
        std::fs::write(file, server.url()).unwrap();
        std::future::pending::<()>().await;
    }

    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("url");
    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "redis::a_server_dies_with_a_test_that_is_killed", "--include-ignored"])
        .env(TELL_URL_TO, &told)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let url = loop {
        match std::fs::read_to_string(&told) {
            Ok(url) if !url.is_empty() => break url,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let client = redis::Client::open(url).unwrap();
    assert!(client.get_multiplexed_async_connection().await.is_ok());
    killed.kill().unwrap();
    killed.wait().unwrap();
    while client.get_multiplexed_async_connection().await.is_ok() {}
}
