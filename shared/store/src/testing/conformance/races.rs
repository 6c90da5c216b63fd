//! Concurrent calls.

use std::sync::Arc;

use super::{HOUR, Kept, Names, applied, ended, holds, is};
use crate::{Batch, Commit, Expect, Found, Key, Store};

pub async fn no_increment_is_lost_among_many_workers(store: Arc<dyn Store>) -> Kept {
    const WORKERS: usize = 8;
    const EACH: usize = 25;
    let key = Names::new().key("counter");
    applied(&store, Batch::new().put(&key, Expect::Absent, "0", HOUR)).await?;
    let worker = |store: Arc<dyn Store>, key: Key| async move {
        let mut base = "0".to_owned();
        for _ in 0..EACH {
            loop {
                let next = (base.parse::<usize>()? + 1).to_string();
                let swap = Batch::new().put(&key, is(&base), next.as_str(), HOUR);
                match store.commit(&swap).await {
                    Ok(Commit::Applied(_)) => {
                        base = next;
                        break;
                    }
                    Ok(Commit::Refused(refusal)) => {
                        base = refusal.get(&key).and_then(Found::text).unwrap_or_default().to_owned();
                    }
                    Err(error) => ensure!(!error.maybe_applied() && error.is_retryable(), "{error}"),
                }
            }
        }
        Kept::Ok(())
    };
    let workers = (0..WORKERS).map(|_| tokio::spawn(worker(Arc::clone(&store), key.clone())));
    ended(workers).await?;
    holds(&store, &key, Some(&(WORKERS * EACH).to_string())).await
}

pub async fn one_of_a_hundred_racing_claims_wins(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("claim");
    let claim = |n: usize, store: Arc<dyn Store>, key: Key| async move {
        let token = format!("claim {n}");
        Ok(match store.commit(&Batch::new().put(&key, Expect::Absent, token.as_str(), HOUR)).await? {
            Commit::Applied(_) => (true, token),
            Commit::Refused(refusal) => {
                (false, refusal.get(&key).and_then(Found::text).unwrap_or_default().to_owned())
            }
        })
    };
    let claims: Vec<_> = (0..100).map(|n| tokio::spawn(claim(n, Arc::clone(&store), key.clone()))).collect();
    let answers = ended(claims).await?;
    let winners: Vec<&String> = answers.iter().filter(|(won, _)| *won).map(|(_, token)| token).collect();
    ensure_eq!(winners.len(), 1);
    ensure!(answers.iter().all(|(_, token)| token == winners[0]), "every loser is told the winner");
    holds(&store, &key, Some(winners[0])).await
}
