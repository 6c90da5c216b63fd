//! Records in the order of their commits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{HOUR, Names, SHORT, absent_or, applied, holds, in_time, insist, is, refused, texts};
use crate::{Batch, Commit, Error, Expect, Keep, Key, Log, Position, Record, Store, Ttl, Value};

pub async fn an_append_and_its_marker_happen_together_or_not_at_all(store: Arc<dyn Store>) {
    let names = Names::new();
    let (marker, other, log) = (names.key("seen:1"), names.key("seen:2"), names.log("log"));
    let event = |marker: &Key| {
        Batch::new().put(marker, Expect::Absent, Value::PositionOf(0), HOUR).append(
            &log,
            "event",
            Keep::all_for(HOUR),
        )
    };
    applied(&store, event(&marker)).await;
    let first = store.get(&marker).await.unwrap();
    assert_eq!(refused(&store, event(&marker)).await, [first]);
    assert_eq!(texts(&store, &log).await.len(), 1);
    applied(&store, event(&other)).await;
    assert_eq!(texts(&store, &log).await.len(), 2);
}

pub async fn a_marker_holds_the_position_of_its_record(store: Arc<dyn Store>) {
    let names = Names::new();
    let (first, second) = (names.log("first"), names.log("second"));
    applied(&store, Batch::new().append(&second, "earlier", Keep::all_for(HOUR))).await;
    let batch = Batch::new()
        .append(&first, "one", Keep::all_for(HOUR))
        .put(&names.key("of the second"), Expect::Absent, Value::PositionOf(1), HOUR)
        .append(&second, "two", Keep::about(1000))
        .put(&names.key("of the first"), Expect::Absent, Value::PositionOf(0), HOUR);
    let Commit::Applied(positions) = store.commit(&batch).await.unwrap() else { panic!("refused") };
    let last = |records: Vec<Record>| records.last().map(|record| record.position).unwrap();
    assert_eq!(last(store.read(&first, None, 10).await.unwrap()), positions[0]);
    assert_eq!(last(store.read(&second, None, 10).await.unwrap()), positions[1]);
    holds(&store, &names.key("of the first"), Some(&positions[0].to_string())).await;
    holds(&store, &names.key("of the second"), Some(&positions[1].to_string())).await;
}

pub async fn positions_increase_and_reading_on_neither_repeats_nor_skips(store: Arc<dyn Store>) {
    let log = Names::new().log("log");
    let mut positions = Vec::new();
    for n in 0..25 {
        let batch = Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR));
        let Commit::Applied(given) = store.commit(&batch).await.unwrap() else { panic!("refused") };
        positions.extend(given);
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    for page in [1, 7, 25, 100] {
        let mut read: Vec<Record> = Vec::new();
        loop {
            let after = read.last().map(|record| record.position);
            let more = store.read(&log, after, page).await.unwrap();
            assert!(more.len() <= page);
            if more.is_empty() {
                break;
            }
            read.extend(more);
        }
        assert_eq!(read.iter().map(|record| record.position).collect::<Vec<_>>(), positions);
        assert!(read.iter().enumerate().all(|(n, record)| record.text == n.to_string()));
    }
    assert_eq!(store.read(&log, Some(positions[9]), 3).await.unwrap()[0].position, positions[10]);
    assert_eq!(store.read(&log, None, 0).await.unwrap(), Vec::<Record>::new());
}

pub async fn a_reader_that_resumes_sees_every_concurrent_append_once(store: Arc<dyn Store>) {
    const WRITERS: usize = 4;
    const EACH: usize = 15;
    let log = Names::new().log("log");
    let writer = |w: usize, store: Arc<dyn Store>, log: Log| async move {
        for n in 0..EACH {
            insist(&store, || Batch::new().append(&log, format!("{w}/{n}"), Keep::all_for(HOUR))).await;
        }
    };
    let writers: Vec<_> =
        (0..WRITERS).map(|w| tokio::spawn(writer(w, Arc::clone(&store), log.clone()))).collect();
    let mut read: Vec<Record> = Vec::new();
    let all = async {
        while read.len() < WRITERS * EACH {
            let after = read.last().map(|record| record.position);
            read.extend(store.read(&log, after, 5).await.unwrap());
            sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = timeout(Duration::from_secs(30), all).await;
    join_all(writers).await.into_iter().for_each(|ended| ended.unwrap());
    assert!(in_time.is_ok(), "the reader missed {} records", WRITERS * EACH - read.len());
    for w in 0..WRITERS {
        let own: Vec<&str> = read.iter().filter_map(|r| r.text.strip_prefix(&format!("{w}/"))).collect();
        assert_eq!(own, (0..EACH).map(|n| n.to_string()).collect::<Vec<_>>(), "in each writer's order");
    }
    assert_eq!(store.read(&log, None, 1000).await.unwrap(), read);
}

pub async fn a_long_log_is_read_to_its_end(store: Arc<dyn Store>) {
    let log = Names::new().log("log");
    for n in 0..30 {
        let text = format!("{n:03}{}", "x".repeat(100_000));
        applied(&store, Batch::new().append(&log, text, Keep::all_for(HOUR))).await;
    }
    let records = store.read(&log, None, 1000).await.unwrap();
    assert_eq!(records.len(), 30);
    assert!(records.iter().enumerate().all(|(n, record)| record.text.starts_with(&format!("{n:03}x"))));
    assert_eq!(store.read(&log, Some(records[3].position), 20).await.unwrap(), records[4..24]);
}

pub async fn a_log_ends_after_its_last_append(store: Arc<dyn Store>) {
    let observed = in_time(SHORT * 3, async || {
        let (log, lasting) = (Names::new().log("log"), Names::new().log("lasting"));
        applied(&store, Batch::new().append(&lasting, "1", Keep::all_for(SHORT))).await;
        applied(&store, Batch::new().append(&lasting, "2", Keep::all_for(Ttl::Forever))).await;
        applied(&store, Batch::new().append(&log, "1", Keep::all_for(SHORT * 2))).await;
        sleep(SHORT).await;
        applied(&store, Batch::new().append(&log, "2", Keep::all_for(SHORT * 2))).await;
        sleep(SHORT + SHORT / 2).await;
        let kept = texts(&store, &log).await;
        let last_look = Instant::now();
        let lasting = texts(&store, &lasting).await;
        sleep(SHORT).await;
        (last_look, (kept, lasting, texts(&store, &log).await))
    });
    let (kept, lasting, ended) = observed.await;
    assert_eq!(kept, ["1", "2"], "the last append gave the whole log its life");
    assert_eq!(lasting, ["1", "2"], "also one without an end");
    assert_eq!(ended, Vec::<String>::new());
}

pub async fn a_log_that_ended_begins_anew_with_higher_positions(store: Arc<dyn Store>) {
    let log = Names::new().log("log");
    let append = |text: &'static str, ttl: Ttl| {
        let batch = Batch::new().append(&log, text, Keep::all_for(ttl));
        let store = Arc::clone(&store);
        async move {
            match store.commit(&batch).await.unwrap() {
                Commit::Applied(positions) => positions[0],
                Commit::Refused(_) => panic!("refused"),
            }
        }
    };
    append("1", SHORT.into()).await;
    let old = append("2", SHORT.into()).await;
    sleep(SHORT * 2).await;
    let new = append("3", Ttl::Forever).await;
    assert!(new > old);
    assert_eq!(texts(&store, &log).await, ["3"]);
    assert_eq!(store.read(&log, Some(old), 10).await.unwrap().len(), 1, "who resumes sees the new life");
    sleep(SHORT * 2).await;
    assert_eq!(texts(&store, &log).await, ["3"], "and it lives for ever");
}

pub async fn records_of_an_earlier_life_stand_in_no_readers_way(store: Arc<dyn Store>) {
    for (old, new, limit) in [(3, 1, 1), (60, 60, 100), (7, 3, 2)] {
        let log = Names::new().log("log");
        for n in 0..old {
            applied(&store, Batch::new().append(&log, format!("old {n}"), Keep::all_for(SHORT))).await;
        }
        let left_off = store.read(&log, None, 2).await.unwrap().last().map(|record| record.position);
        sleep(SHORT * 2).await;
        for n in 0..new {
            applied(&store, Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR))).await;
        }
        let all: Vec<String> = (0..new).map(|n| n.to_string()).collect();
        // One reader begins, the other was in the middle of the earlier life.
        for mut after in [None, left_off] {
            let mut read = Vec::new();
            while read.len() < new {
                let page = store.read(&log, after, limit).await.unwrap();
                assert_eq!(
                    page.len(),
                    limit.min(new - read.len()),
                    "of {old} old and {new} new, after {after:?}"
                );
                after = page.last().map(|record| record.position);
                read.extend(page.into_iter().map(|record| record.text));
            }
            assert_eq!(read, all);
            assert_eq!(store.read(&log, after, limit).await.unwrap(), Vec::<Record>::new());
        }
    }
}

pub async fn a_name_holds_a_value_or_a_log_and_the_other_is_an_error(store: Arc<dyn Store>) {
    let names = Names::new();
    let (other, seq) = (names.key("other"), r#"{"seq":1}"#);
    let append = |log: &Log, ttl: Duration| Batch::new().append(log, "record", Keep::all_for(ttl));
    let put = |key: &Key, ttl: Duration| Batch::new().put(key, Expect::Absent, "value", ttl);
    let unreadable = |error: Option<Error>, what: &str| {
        assert!(matches!(error, Some(Error::Decode { .. })), "{what}: {error:?}");
    };

    let (key, log) = (names.key("a log"), names.log("a log"));
    applied(&store, append(&log, HOUR)).await;
    unreadable(store.get(&key).await.err(), "get");
    let writes = [
        put(&key, HOUR),
        Batch::new().put(&key, is("value"), "new", HOUR),
        Batch::new().put(&key, absent_or("value"), "new", HOUR),
        Batch::new().put_if_newer(&key, 1, seq, HOUR),
        Batch::new().delete(&key, "value"),
        Batch::new().check(&key, Expect::Absent),
        Batch::new().check(&key, is("value")),
    ];
    for write in writes {
        unreadable(store.commit(&write).await.err(), "alone");
        // The same in a batch of several writes, for which a backend may use another mechanism; also with an
        // expectation that fails.
        for fails in [Expect::Absent, is("never")] {
            let batch = Batch::new().put(&other, fails, "new", HOUR).and(write.clone());
            unreadable(store.commit(&batch).await.err(), "together");
        }
    }
    assert_eq!(texts(&store, &log).await, ["record"]);

    let (key, log) = (names.key("a value"), names.log("a value"));
    applied(&store, put(&key, HOUR)).await;
    unreadable(store.read(&log, None, 10).await.err(), "read");
    unreadable(store.commit(&append(&log, HOUR)).await.err(), "append");
    let batch = put(&other, HOUR).and(append(&log, HOUR));
    unreadable(store.commit(&batch).await.err(), "append with another");
    holds(&store, &key, Some("value")).await;
    holds(&store, &other, None).await;

    // After a value or log has expired, its name can be used for either kind.
    let (key, log) = (names.key("short"), names.log("short"));
    applied(&store, append(&log, SHORT)).await;
    sleep(SHORT * 2).await;
    holds(&store, &key, None).await;
    applied(&store, put(&key, SHORT)).await;
    unreadable(store.read(&log, None, 10).await.err(), "read");
    sleep(SHORT * 2).await;
    assert_eq!(texts(&store, &log).await, Vec::<String>::new());
    applied(&store, append(&log, HOUR)).await;
    assert_eq!(texts(&store, &log).await, ["record"]);
    unreadable(store.get(&key).await.err(), "get");
}

pub async fn a_log_keeps_its_newest_records(store: Arc<dyn Store>) {
    let log = Names::new().log("log");
    for n in 0..30 {
        applied(&store, Batch::new().append(&log, n.to_string(), Keep::about(10))).await;
    }
    let texts = texts(&store, &log).await;
    assert!(texts.len() >= 10, "a backend may keep more, never fewer");
    let newest: Vec<String> = (30 - texts.len()..30).map(|n| n.to_string()).collect();
    assert_eq!(texts, newest);
}

pub async fn a_log_is_read_from_any_position_and_to_any_limit(store: Arc<dyn Store>) {
    let names = Names::new();
    let (log, text) = (names.log("log"), names.key("text"));
    applied(&store, Batch::new().put(&text, Expect::Absent, "no log", HOUR)).await;
    assert_eq!(store.read(&names.log("text"), None, 0).await, Ok(Vec::new()), "nothing is asked for");
    let mut positions = Vec::new();
    for n in 0..3 {
        let batch = Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR));
        let Commit::Applied(position) = store.commit(&batch).await.unwrap() else { panic!("refused") };
        positions.extend(position);
    }
    for limit in [usize::MAX, i64::MAX as usize + 1, i64::MAX as usize, 1 << 32, 100, 3, 2, 1, 0] {
        let records = store.read(&log, None, limit).await.unwrap();
        assert_eq!(records.len(), limit.min(3), "{limit}");
        let records = store.read(&log, Some(positions[0]), limit).await.unwrap();
        assert_eq!(records.len(), limit.min(2), "{limit}");
    }
    let (major, minor) = positions[2].parts();
    for (after, left) in [
        (Position::new(0, 0), 3),
        (Position::new(0, u64::MAX), 3),
        (Position::new(major, u64::MAX), 0),
        (Position::new(major, minor + 1), 0),
        (Position::new(u64::MAX, 0), 0),
        (Position::new(u64::MAX, u64::MAX - 1), 0),
        (Position::new(u64::MAX, u64::MAX), 0),
    ] {
        let records = store.read(&log, Some(after), usize::MAX).await.unwrap();
        assert_eq!(records.len(), left, "after {after}");
    }
}
