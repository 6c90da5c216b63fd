//! Reads a whole log.

use crate::{Error, Log, Record, Store};

/// The most records that are read in one call.
const PAGE_RECORDS: usize = 1000;

/// All records of `log`, in commit order, read in pages. A log that is absent has none.
///
/// A page that is not full is the last one. Records that are committed during the call may be missing, but none before a
/// record that is there. A log that is [cleared](crate::Batch::clear) during the call is read anew: its records are those
/// before the clear, or those after it.
///
/// ```
/// use onetap_store::{Batch, Commit, Keep, Log, Memory, Store, read_to_end};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onetap_store::Error> {
/// let store = Memory::new();
/// let log = Log::new("scan:job:1")?;
/// for n in 0..2001 {
///     let batch = Batch::new().append(&log, n.to_string(), Keep::about(5000));
///     assert!(matches!(store.commit(&batch).await?, Commit::Applied(_)));
/// }
/// let records = read_to_end(&store, &log).await?;
/// assert!(records.iter().map(|record| record.text.clone()).eq((0..2001).map(|n| n.to_string())));
/// # Ok(()) }
/// ```
pub async fn read_to_end(store: &dyn Store, log: &Log) -> Result<Vec<Record>, Error> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map(|record| record.position);
        let page = store.read(log, after, PAGE_RECORDS).await?;
        let is_full = page.len() == PAGE_RECORDS;
        records.extend(page);
        if is_full {
            continue;
        }
        // One page is as of one commit. After several, the log's first record shows whether it was cleared in between.
        let Some(first_page_end) = records.get(PAGE_RECORDS - 1) else { return Ok(records) };
        match store.read(log, None, 1).await?.first() {
            Some(first) if first.position <= first_page_end.position => return Ok(records),
            _ => records.clear(),
        }
    }
}
