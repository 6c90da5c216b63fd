//! The official Upstash clients take the gateway for the original.

use std::path::{Path, PathBuf};
use std::process::Command;

use onetap_servers::{Redis, Upstash};

#[tokio::test]
#[ignore = "needs redis-server, node and @upstash/redis"]
async fn the_official_javascript_client_works() {
    assert!(
        tools().join("node_modules/@upstash/redis").is_dir(),
        "@upstash/redis not found: run scripts/test"
    );
    succeeds("node".into(), "upstash.mjs").await;
}

#[tokio::test]
#[ignore = "needs redis-server, python and upstash-redis"]
async fn the_official_python_client_works() {
    let python = tools().join("venv/bin/python");
    assert!(python.is_file(), "upstash-redis not found: run scripts/test");
    succeeds(python, "upstash.py").await;
}

/// Runs a script of `clients/` against a new gateway. Blocking is fine: the gateway has threads of its own.
async fn succeeds(program: PathBuf, script: &str) {
    let redis = Redis::start().await;
    let upstash = Upstash::start(&redis.url()).await;
    let run = Command::new(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script))
        .env("ONETAP_TOOLS", tools())
        .env("UPSTASH_REDIS_REST_URL", upstash.url())
        .env("UPSTASH_REDIS_REST_TOKEN", upstash.token())
        .output()
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()));
    assert!(run.status.success(), "{script} failed:\n{}", String::from_utf8_lossy(&run.stderr));
}

/// Where `scripts/test` installs what is not in Debian.
fn tools() -> PathBuf {
    std::env::var_os("ONETAP_TOOLS").expect("ONETAP_TOOLS, which .cargo/config.toml sets").into()
}
