//! Records in the order of their commits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{
    HOUR, Kept, Names, SHORT, absent_or, applied, ended, holds, in_time, insist, is, refused, texts,
};
use crate::{Batch, Error, ErrorKind, Expect, Keep, Key, Log, Position, Record, Store, Ttl, Value};

pub async fn an_append_and_its_marker_happen_together_or_not_at_all(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (marker, other, log) = (names.key("seen:1"), names.key("seen:2"), names.log("log"));
    let event = |marker: &Key| {
        Batch::new().put(marker, Expect::Absent, Value::PositionOf(0), HOUR).append(
            &log,
            "event",
            Keep::all_for(HOUR),
        )
    };
    applied(&store, event(&marker)).await?;
    let first = store.get(&marker).await?;
    ensure_eq!(refused(&store, event(&marker)).await?, [first]);
    ensure_eq!(texts(&store, &log).await?.len(), 1);
    applied(&store, event(&other)).await?;
    ensure_eq!(texts(&store, &log).await?.len(), 2);
    Ok(())
}

pub async fn a_marker_holds_the_position_of_its_record(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (first, second) = (names.log("first"), names.log("second"));
    applied(&store, Batch::new().append(&second, "earlier", Keep::all_for(HOUR))).await?;
    let batch = Batch::new()
        .append(&first, "one", Keep::all_for(HOUR))
        .put(&names.key("of the second"), Expect::Absent, Value::PositionOf(1), HOUR)
        .append(&second, "two", Keep::about(1000))
        .put(&names.key("of the first"), Expect::Absent, Value::PositionOf(0), HOUR);
    let positions = applied(&store, batch).await?;
    let last = |records: Vec<Record>| records.last().map(|record| record.position);
    ensure_eq!(last(store.read(&first, None, 10).await?), Some(positions[0]));
    ensure_eq!(last(store.read(&second, None, 10).await?), Some(positions[1]));
    holds(&store, &names.key("of the first"), Some(&positions[0].to_string())).await?;
    holds(&store, &names.key("of the second"), Some(&positions[1].to_string())).await
}

pub async fn positions_increase_and_reading_on_neither_repeats_nor_skips(store: Arc<dyn Store>) -> Kept {
    let log = Names::new().log("log");
    let mut positions = Vec::new();
    for n in 0..25 {
        let batch = Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR));
        let given = applied(&store, batch).await?;
        positions.extend(given);
    }
    ensure!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    for page in [1, 7, 25, 100] {
        let mut read: Vec<Record> = Vec::new();
        loop {
            let after = read.last().map(|record| record.position);
            let more = store.read(&log, after, page).await?;
            ensure!(more.len() <= page);
            if more.is_empty() {
                break;
            }
            read.extend(more);
        }
        ensure_eq!(read.iter().map(|record| record.position).collect::<Vec<_>>(), positions);
        ensure!(read.iter().enumerate().all(|(n, record)| record.text == n.to_string()));
    }
    let next = store.read(&log, Some(positions[9]), 3).await?;
    ensure_eq!(next.first().map(|record| record.position), Some(positions[10]));
    ensure_eq!(store.read(&log, None, 0).await?, Vec::<Record>::new());
    Ok(())
}

pub async fn a_reader_that_resumes_sees_every_concurrent_append_once(store: Arc<dyn Store>) -> Kept {
    const WRITERS: usize = 4;
    const EACH: usize = 15;
    let log = Names::new().log("log");
    let writer = |w: usize, store: Arc<dyn Store>, log: Log| async move {
        for n in 0..EACH {
            insist(&store, || Batch::new().append(&log, format!("{w}/{n}"), Keep::all_for(HOUR))).await?;
        }
        Kept::Ok(())
    };
    let writers: Vec<_> =
        (0..WRITERS).map(|w| tokio::spawn(writer(w, Arc::clone(&store), log.clone()))).collect();
    let mut read: Vec<Record> = Vec::new();
    let all = async {
        while read.len() < WRITERS * EACH {
            let after = read.last().map(|record| record.position);
            read.extend(store.read(&log, after, 5).await?);
            sleep(Duration::from_millis(1)).await;
        }
        Kept::Ok(())
    };
    let in_time = timeout(Duration::from_secs(30), all).await;
    ended(writers).await?;
    ensure!(matches!(in_time, Ok(Ok(()))), "the reader missed {} records", WRITERS * EACH - read.len());
    for w in 0..WRITERS {
        let own: Vec<&str> = read.iter().filter_map(|r| r.text.strip_prefix(&format!("{w}/"))).collect();
        ensure_eq!(own, (0..EACH).map(|n| n.to_string()).collect::<Vec<_>>(), "in each writer's order");
    }
    ensure_eq!(store.read(&log, None, 1000).await?, read);
    Ok(())
}

pub async fn a_long_log_is_read_to_its_end(store: Arc<dyn Store>) -> Kept {
    let log = Names::new().log("log");
    for n in 0..30 {
        let text = format!("{n:03}{}", "x".repeat(100_000));
        applied(&store, Batch::new().append(&log, text, Keep::all_for(HOUR))).await?;
    }
    let records = store.read(&log, None, 1000).await?;
    ensure_eq!(records.len(), 30);
    ensure!(records.iter().enumerate().all(|(n, record)| record.text.starts_with(&format!("{n:03}x"))));
    ensure_eq!(store.read(&log, Some(records[3].position), 20).await?, records[4..24]);
    Ok(())
}

pub async fn a_log_ends_after_its_last_append(store: Arc<dyn Store>) -> Kept {
    let observed = in_time(SHORT * 3, async || {
        let (log, lasting) = (Names::new().log("log"), Names::new().log("lasting"));
        applied(&store, Batch::new().append(&lasting, "1", Keep::all_for(SHORT))).await?;
        applied(&store, Batch::new().append(&lasting, "2", Keep::all_for(Ttl::Forever))).await?;
        applied(&store, Batch::new().append(&log, "1", Keep::all_for(SHORT * 2))).await?;
        sleep(SHORT).await;
        applied(&store, Batch::new().append(&log, "2", Keep::all_for(SHORT * 2))).await?;
        sleep(SHORT + SHORT / 2).await;
        let kept = texts(&store, &log).await?;
        let last_look = Instant::now();
        let lasting = texts(&store, &lasting).await?;
        sleep(SHORT).await;
        Ok((last_look, (kept, lasting, texts(&store, &log).await?)))
    });
    let (kept, lasting, ended) = observed.await?;
    ensure_eq!(kept, ["1", "2"], "the last append gave the whole log its life");
    ensure_eq!(lasting, ["1", "2"], "also one without an end");
    ensure_eq!(ended, Vec::<String>::new());
    Ok(())
}

pub async fn a_log_that_ended_begins_anew_with_higher_positions(store: Arc<dyn Store>) -> Kept {
    let log = Names::new().log("log");
    let append = |text: &'static str, ttl: Ttl| {
        let batch = Batch::new().append(&log, text, Keep::all_for(ttl));
        let store = Arc::clone(&store);
        async move { applied(&store, batch).await.map(|positions| positions.last().copied()) }
    };
    append("1", SHORT.into()).await?;
    let old = append("2", SHORT.into()).await?;
    sleep(SHORT * 2).await;
    let new = append("3", Ttl::Forever).await?;
    ensure!(new > old);
    ensure_eq!(texts(&store, &log).await?, ["3"]);
    ensure_eq!(store.read(&log, old, 10).await?.len(), 1, "who resumes sees the new life");
    sleep(SHORT * 2).await;
    ensure_eq!(texts(&store, &log).await?, ["3"], "and it lives for ever");
    Ok(())
}

pub async fn records_of_an_earlier_life_stand_in_no_readers_way(store: Arc<dyn Store>) -> Kept {
    for (old, new, limit) in [(3, 1, 1), (60, 60, 100), (7, 3, 2)] {
        let log = Names::new().log("log");
        for n in 0..old {
            applied(&store, Batch::new().append(&log, format!("old {n}"), Keep::all_for(SHORT))).await?;
        }
        let left_off = store.read(&log, None, 2).await?.last().map(|record| record.position);
        sleep(SHORT * 2).await;
        for n in 0..new {
            applied(&store, Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR))).await?;
        }
        let all: Vec<String> = (0..new).map(|n| n.to_string()).collect();
        // One reader begins, the other was in the middle of the earlier life.
        for mut after in [None, left_off] {
            let mut read = Vec::new();
            while read.len() < new {
                let page = store.read(&log, after, limit).await?;
                ensure_eq!(
                    page.len(),
                    limit.min(new - read.len()),
                    "of {old} old and {new} new, after {after:?}"
                );
                after = page.last().map(|record| record.position);
                read.extend(page.into_iter().map(|record| record.text));
            }
            ensure_eq!(read, all);
            ensure_eq!(store.read(&log, after, limit).await?, Vec::<Record>::new());
        }
    }
    Ok(())
}

pub async fn a_name_holds_a_value_or_a_log_and_the_other_is_an_error(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (other, seq) = (names.key("other"), r#"{"seq":1}"#);
    let append = |log: &Log, ttl: Duration| Batch::new().append(log, "record", Keep::all_for(ttl));
    let put = |key: &Key, ttl: Duration| Batch::new().put(key, Expect::Absent, "value", ttl);
    let unreadable = |error: Option<Error>, what: &str| {
        ensure!(error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Decode), "{what}: {error:?}");
        Kept::Ok(())
    };

    let (key, log) = (names.key("a log"), names.log("a log"));
    applied(&store, append(&log, HOUR)).await?;
    unreadable(store.get(&key).await.err(), "get")?;
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
        unreadable(store.commit(&write).await.err(), "alone")?;
        // The same in a batch of several writes, for which a backend may use another mechanism; also with an
        // expectation that fails.
        for fails in [Expect::Absent, is("never")] {
            let batch = Batch::new().put(&other, fails, "new", HOUR).and(write.clone());
            unreadable(store.commit(&batch).await.err(), "together")?;
        }
    }
    ensure_eq!(texts(&store, &log).await?, ["record"]);

    let (key, log) = (names.key("a value"), names.log("a value"));
    applied(&store, put(&key, HOUR)).await?;
    unreadable(store.read(&log, None, 10).await.err(), "read")?;
    unreadable(store.commit(&append(&log, HOUR)).await.err(), "append")?;
    let batch = put(&other, HOUR).and(append(&log, HOUR));
    unreadable(store.commit(&batch).await.err(), "append with another")?;
    holds(&store, &key, Some("value")).await?;
    holds(&store, &other, None).await?;

    // After a value or log has expired, its name can be used for either kind.
    let (key, log) = (names.key("short"), names.log("short"));
    applied(&store, append(&log, SHORT)).await?;
    sleep(SHORT * 2).await;
    holds(&store, &key, None).await?;
    applied(&store, put(&key, SHORT)).await?;
    unreadable(store.read(&log, None, 10).await.err(), "read")?;
    sleep(SHORT * 2).await;
    ensure_eq!(texts(&store, &log).await?, Vec::<String>::new());
    applied(&store, append(&log, HOUR)).await?;
    ensure_eq!(texts(&store, &log).await?, ["record"]);
    unreadable(store.get(&key).await.err(), "get")?;
    Ok(())
}

pub async fn a_log_keeps_its_newest_records(store: Arc<dyn Store>) -> Kept {
    let log = Names::new().log("log");
    for n in 0..30 {
        applied(&store, Batch::new().append(&log, n.to_string(), Keep::about(10))).await?;
    }
    let texts = texts(&store, &log).await?;
    ensure!(texts.len() >= 10, "a backend may keep more, never fewer");
    let newest: Vec<String> = (30 - texts.len()..30).map(|n| n.to_string()).collect();
    ensure_eq!(texts, newest);
    Ok(())
}

pub async fn a_log_is_read_from_any_position_and_to_any_limit(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let (log, text) = (names.log("log"), names.key("text"));
    applied(&store, Batch::new().put(&text, Expect::Absent, "no log", HOUR)).await?;
    ensure!(store.read(&names.log("text"), None, 0).await?.is_empty(), "nothing is asked for");
    let mut positions = Vec::new();
    for n in 0..3 {
        let batch = Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR));
        let position = applied(&store, batch).await?;
        positions.extend(position);
    }
    for limit in [usize::MAX, i64::MAX as usize + 1, i64::MAX as usize, 1 << 32, 100, 3, 2, 1, 0] {
        let records = store.read(&log, None, limit).await?;
        ensure_eq!(records.len(), limit.min(3), "{limit}");
        let records = store.read(&log, Some(positions[0]), limit).await?;
        ensure_eq!(records.len(), limit.min(2), "{limit}");
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
        let records = store.read(&log, Some(after), usize::MAX).await?;
        ensure_eq!(records.len(), left, "after {after}");
    }
    Ok(())
}
