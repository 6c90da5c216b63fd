//! The guide, walked through: its commands run one after the other, with what they call outside replaced.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use onetap_tests::functions::root;
use serde_json::Value;

use super::document::Template;
use super::guide::guide;

/// In place of every program that the guide runs outside of this machine: it fails if a file that it is given is not there,
/// keeps the secret as Secrets Manager does, and answers what the next command needs.
const STAND_IN: &str = r##"#!/usr/bin/env bash
set -euo pipefail
name=${0##*/}
for argument in "$@"; do
  case $argument in
    file://*) file=${argument#file://} ;;
    @*) file=${argument#@} ;;
    *) continue ;;
  esac
  [ -e "$file" ] || { echo "$name $*: there is no $file" >&2; exit 1; }
done
case "$name $*" in
  "editor "*)
    if [ "$STORE_OF_THE_WALK" = dynamodb ]; then sed -i '/UPSTASH/d' "$1"; fi
    sed -i 's/…/edited/' "$1" ;;
  "openssl rand"*) echo 0123456789abcdef ;;
  "openssl dgst"*) cat >/dev/null; echo "SHA2-256(stdin)= 0123456789abcdef" ;;
  "aws secretsmanager create-secret"* | "aws secretsmanager put-secret-value"*)
    cp "$file" "$KEPT/secret"; cp "$file" "$KEPT/secret-$2"; echo 01234567-89ab-cdef-0123-456789abcdef ;;
  "aws secretsmanager get-secret-value"*) cat "$KEPT/secret" ;;
  "aws configure export-credentials"*) echo "export AWS_ACCESS_KEY_ID=key" ;;
  "aws lambda get-account-settings"*) echo "$UNRESERVED" ;;
  "sam deploy --no-confirm-changeset"*) for each in "$@"; do echo "$each"; done >"$KEPT/parameters" ;;
  "aws cloudformation describe-stacks"*) echo "https://example.com/" ;;
  *" https://api.line.me/v2/bot/richmenu "*) echo '{"richMenuId":"richmenu-1"}' ;;
  "cargo doctor --json") echo '{"findings":[]}' ;;
  "cargo doctor"*) echo "$LINE_CHANNEL_SECRET $EDIT_API_TOKEN ${UPSTASH_REDIS_REST_URL-none}" >>"$KEPT/doctor" ;;
esac
"##;

/// What is run outside of this machine.
const STOOD_IN_FOR: [&str; 7] = ["editor", "openssl", "aws", "curl", "cargo", "sam", "rustup"];

/// The shell's blocks of the guide, in order.
fn blocks(guide: &str) -> Vec<&str> {
    let blocks = guide.split("\n```sh\n").skip(1);
    blocks.map(|rest| rest.split_once("\n```").unwrap().0).collect()
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs every command of the guide in one shell, on an account with so much concurrency; returns the secret after its making and after its change.
fn walked(store: &str, unreserved: u32, streams: u32) -> [Value; 2] {
    let folder = tempfile::tempdir().unwrap();
    let [clone, path, kept] = ["clone", "path", "kept"].map(|name| folder.path().join(name));
    for folder in [&clone, &path, &kept, &clone.join("scripts")] {
        fs::create_dir(folder).unwrap();
    }
    symlink(root().join("docs"), clone.join("docs")).unwrap();
    program(&clone.join("scripts/tools"), "#!/bin/sh\n");
    for name in STOOD_IN_FOR {
        program(&path.join(name), STAND_IN);
    }
    let guide = guide();
    let blocks = blocks(&guide);
    assert!(blocks.len() > 15, "{} blocks", blocks.len());
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &blocks.join("\n")])
        .current_dir(&clone)
        .env("PATH", path)
        .env("EDITOR", "editor")
        .env("KEPT", &kept)
        .env("STORE_OF_THE_WALK", store)
        .env("UNRESERVED", unreserved.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{store}: {}", String::from_utf8_lossy(&output.stderr));
    let parameters = fs::read_to_string(kept.join("parameters")).unwrap();
    let limit = format!("JobEventsConcurrency={streams}");
    assert!(parameters.lines().any(|parameter| parameter == limit), "{parameters}");
    assert!(!clone.join("secret.json").exists(), "the secret stays on the disk");
    let address = if store == "upstash" { "https://edited.upstash.io" } else { "none" };
    let doctor = fs::read_to_string(kept.join("doctor")).unwrap();
    for asked in doctor.lines() {
        assert_eq!(asked, format!("edited 0123456789abcdef {address}"), "{store}: what the doctor got");
    }
    ["secret-create-secret", "secret-put-secret-value"]
        .map(|name| serde_json::from_slice(&fs::read(kept.join(name)).unwrap()).unwrap())
}

#[test]
fn every_command_of_the_guide_finds_what_it_needs_with_and_without_upstash() {
    // What the account has left, and what the streams get of it: AWS leaves 100 to the other functions, and a new account ten in all.
    for (store, unreserved, streams) in [("upstash", 10, 0), ("dynamodb", 1000, 450)] {
        for secret in walked(store, unreserved, streams) {
            let secret = secret.as_object().unwrap();
            assert_eq!(secret.contains_key("UPSTASH_REDIS_REST_URL"), store == "upstash");
            assert_eq!(secret.contains_key("UPSTASH_REDIS_REST_TOKEN"), store == "upstash");
            for name in
                ["LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN", "EDIT_API_TOKEN", "JOB_EVENTS_SECRET"]
            {
                assert!(secret.contains_key(name), "{store}: {name}");
            }
        }
    }
}

#[test]
fn whoever_chooses_open_meteo_reads_its_terms() {
    let template = Template::read();
    let of =
        |name: &str| template.at(&format!("/Parameters/{name}/Description")).as_str().unwrap().to_owned();
    let [library, function] = ["shared/weather", "functions/webhook"]
        .map(|folder| fs::read_to_string(root().join(folder).join("README.md")).unwrap());
    for text in [guide(), library, function, of("WeatherProvider"), of("WeatherFallbackProvider")] {
        assert!(text.contains("non-commercial"), "{text}");
    }
}
