//! Values and names: any text, and their limits.

use std::sync::Arc;
use std::time::Duration;

use super::{HOUR, Kept, Names, applied, holds, is, refused, rejected, texts, there};
use crate::{
    Batch, Channel, Commit, Error, ErrorKind, Expect, Keep, Key, Log, MAX_NAME, MAX_TTL, MAX_WRITES, Read,
    Round, Store, Ttl, Value,
};

pub async fn connecting_ahead_changes_nothing_however_often_it_is_done(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let [put, free] = ["put", "free"].map(|name| names.key(name));
    store.connect().await?;
    applied(&store, Batch::new().put(&put, Expect::Absent, "value", HOUR)).await?;
    let [first, second, third] = [store.connect(), store.connect(), store.connect()];
    let (first, second, third, held) = tokio::join!(first, second, third, holds(&store, &put, Some("value")));
    held?;
    for connected in [first, second, third] {
        connected?;
    }
    holds(&store, &put, Some("value")).await?;
    holds(&store, &free, None).await
}

pub async fn any_text_comes_back_as_it_was(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let every: String = ('\u{1}'..'\u{800}').chain(['\u{0}', '\u{fffd}', '\u{10ffff}']).collect();
    let values = [
        "",
        " ",
        "⏳ 正在為您查詢天氣，請稍候...",
        "👩‍👩‍👧‍👦",
        "\"\\/\r\n\t\u{0}",
        "null",
        "false",
        "0",
        "{}",
        "[1]",
        &every,
    ];
    for (n, value) in values.into_iter().enumerate() {
        let (key, log) = (names.key(&n.to_string()), names.log(&format!("log {n}")));
        applied(&store, Batch::new().put(&key, Expect::Absent, value, HOUR)).await?;
        holds(&store, &key, Some(value)).await?;
        ensure_eq!(refused(&store, Batch::new().put(&key, is("other"), "x", HOUR)).await?, there(value));
        // An empty value is a value, also in a batch of several keys.
        let free = names.key("free");
        let claim = Batch::new().check(&free, Expect::Absent).put(&key, Expect::Absent, "x", HOUR);
        ensure_eq!(refused(&store, claim).await?, there(value));
        applied(&store, Batch::new().check(&key, is(value)).append(&log, value, Keep::all_for(HOUR))).await?;
        ensure_eq!(texts(&store, &log).await?, [value]);
        applied(&store, Batch::new().delete(&key, value)).await?;
    }
    Ok(())
}

pub async fn a_value_of_300_kb_comes_back(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("large");
    let large = "天氣 weather ".repeat(20_000);
    ensure!(large.len() >= 300_000);
    applied(&store, Batch::new().put(&key, Expect::Absent, large.as_str(), HOUR)).await?;
    ensure!(store.get(&key).await?.as_deref() == Some(&large));
    applied(&store, Batch::new().put(&key, is(&large), "small", HOUR)).await?;
    Ok(())
}

pub async fn several_keys_are_read_in_their_order(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let keys = ["a", "absent", "b", "ended"].map(|name| names.key(name));
    let [a, _, b, ended] = &keys;
    let batch = Batch::new().put(a, Expect::Absent, "", HOUR).put(b, Expect::Absent, "two", Ttl::Forever);
    applied(&store, batch.put(ended, Expect::Absent, "x", Duration::from_millis(1))).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let text = |text: &str| Some(text.to_owned());
    ensure_eq!(store.get_all(&keys).await?, vec![text(""), None, text("two"), None]);
    ensure_eq!(store.get_all(&[b.clone(), a.clone()]).await?, vec![text("two"), text("")]);
    ensure_eq!(store.get_all(&[]).await?, Vec::new());
    let log = names.log("log");
    applied(&store, Batch::new().append(&log, "x", Keep::all_for(HOUR))).await?;
    let mixed = [a.clone(), Key::from(&log)];
    ensure!(store.get_all(&mixed).await.is_err_and(|error| error.kind() == ErrorKind::Decode));
    Ok(())
}

pub async fn a_read_among_the_requests_of_a_round_brings_what_is_there_in_its_turn(
    store: Arc<dyn Store>,
) -> Kept {
    let names = Names::new();
    let [there, absent, ended, claimed] = ["there", "absent", "ended", "claimed"].map(|name| names.key(name));
    let log = names.log("log");
    let batch = Batch::new().put(&there, Expect::Absent, "", HOUR).append(&log, "x", Keep::all_for(HOUR));
    applied(&store, batch.put(&ended, Expect::Absent, "x", Duration::from_millis(1))).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut round = Round::new();
    let alone = [&there, &absent, &ended].map(|key| round.add(Read::new(key.clone())));
    let of_a_log = round.add(Read::new(Key::from(&log)));
    // Requests that name the same key are answered in their order.
    let before = round.add(Read::new(claimed.clone()));
    let claim = round.add(Batch::new().put(&claimed, Expect::Absent, "mine", HOUR));
    let after = round.add(Read::new(claimed));
    let mut answers = round.send(&*store).await;
    let [there, absent, ended] = alone.map(|ticket| answers.take(ticket));
    ensure_eq!((there?, absent?, ended?), (Some(String::new()), None, None));
    ensure!(
        answers.take(of_a_log).is_err_and(|error| error.kind() == ErrorKind::Decode),
        "a log is no value"
    );
    ensure_eq!(answers.take(before)?, None);
    ensure!(matches!(answers.take(claim), Ok(Commit::Applied(_))));
    ensure_eq!(answers.take(after)?, Some("mine".to_owned()));
    Ok(())
}

pub async fn keys_with_any_characters_are_distinct(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let long = "長".repeat(600);
    let keys = [
        "a", "a:", "a:b", "a b", "a\tb", "a\nb", "a\"b", "a'b", "a\\b", "a{b}", "a*", "天氣", "🌦️", "%20",
        "A", &long,
    ];
    for (n, name) in keys.iter().enumerate() {
        let batch = Batch::new().put(&names.key(name), Expect::Absent, n.to_string(), HOUR);
        applied(&store, batch).await?;
    }
    for (n, name) in keys.iter().enumerate() {
        holds(&store, &names.key(name), Some(&n.to_string())).await?;
    }
    Ok(())
}

pub async fn a_key_must_have_1_to_2048_bytes(store: Arc<dyn Store>) -> Kept {
    ensure!(Key::new("").is_err_and(|error| error.to_string().contains("a key must not be empty")));
    let long = Key::new("k".repeat(MAX_NAME + 1));
    let problem = "a key of 2049 bytes is over the limit of 2048";
    ensure!(long.is_err_and(|error| error.to_string().contains(problem)));
    ensure!(Log::new("").is_err_and(|error| error.to_string().contains("a log's name must not be empty")));
    ensure!(
        Channel::new("").is_err_and(|error| error.to_string().contains("a channel's name must not be empty"))
    );
    let longest = Key::new(format!("{:x<MAX_NAME$}", Names::new().0))?;
    applied(&store, Batch::new().put(&longest, Expect::Absent, "v", HOUR)).await?;
    holds(&store, &longest, Some("v")).await?;
    applied(&store, Batch::new().delete(&longest, "v")).await?;
    Ok(())
}

pub async fn a_batch_that_names_a_key_twice_is_rejected(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (key, log) = (names.key("k"), names.log("l"));
    let twice = Batch::new().put(&key, Expect::Absent, "1", HOUR).put(&key, is("1"), "2", HOUR);
    ensure!(rejected(&store, twice).await?.to_string().contains("only once"));
    holds(&store, &key, None).await?;
    let append = Batch::new().append(&log, "1", Keep::all_for(HOUR));
    for (second, problem) in [
        (Batch::new().append(&log, "2", Keep::all_for(HOUR * 2)), "same `keep`"),
        (Batch::new().append(&log, "2", Keep::about(9)), "same `keep`"),
        (Batch::new().clear(&log), "only once"),
        (Batch::new().put(&names.key("l"), Expect::Absent, "2", HOUR), "only once"),
    ] {
        for batch in [append.clone().and(second.clone()), second.clone().and(append.clone())] {
            let error = rejected(&store, batch).await?;
            ensure!(error.to_string().contains(problem), "{error}");
        }
        rejected(&store, second.clone().and(append.clone()).and(second)).await?;
    }
    rejected(&store, Batch::new().clear(&log).clear(&log)).await?;
    ensure_eq!(texts(&store, &log).await?, Vec::<String>::new());
    Ok(())
}

pub async fn a_batch_that_cannot_be_meant_is_rejected(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let key = names.key("k");
    let cases = [
        (Batch::new().put(&key, Expect::Absent, "v", Duration::ZERO), "TTL must be at least 1 ms"),
        (Batch::new().put(&key, Expect::Absent, "v", MAX_TTL * 2), "TTL must be at most"),
        (
            Batch::new().append(&names.log("l"), "v", Keep::all_for(Duration::ZERO)),
            "TTL must be at least 1 ms",
        ),
        (Batch::new().put(&key, Expect::Absent, Value::PositionOf(0), HOUR), "append 0, of 0"),
        (Batch::new().put_if_newer(&key, 3, r#"{"seq":4}"#, HOUR), "`seq`"),
        (Batch::new().put_if_newer(&key, 3, "no json", HOUR), "`seq`"),
    ];
    for (batch, problem) in cases {
        let error = rejected(&store, batch).await?;
        ensure!(error.to_string().contains(problem), "{error}");
    }
    let many = |count: usize| {
        (0..count).fold(Batch::new(), |batch, n| batch.check(&names.key(&n.to_string()), Expect::Absent))
    };
    ensure!(rejected(&store, many(MAX_WRITES + 1)).await?.to_string().contains("51 writes"));
    applied(&store, many(MAX_WRITES)).await?;
    Ok(())
}

pub async fn a_value_over_the_limit_is_rejected(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    let over = "x".repeat(store.max_value() + 1);
    let error = rejected(&store, Batch::new().put(&key, Expect::Absent, over.as_str(), HOUR)).await?;
    ensure_eq!(error.to_string(), Error::too_large(over.len(), store.max_value()).to_string());
    holds(&store, &key, None).await?;
    let most = &over[1..];
    applied(&store, Batch::new().put(&key, Expect::Absent, most, HOUR)).await?;
    ensure!(store.get(&key).await?.as_deref() == Some(most));
    applied(&store, Batch::new().delete(&key, most)).await?;
    Ok(())
}
