//! A client of a history run, as a process that can be killed and stopped. It is told what to do in one argument, and
//! finds its store by the environment; `onetap_tests::history` starts it.

fn main() {
    let orders = std::env::args().nth(1);
    onetap_tests::history::process::work(&orders.unwrap_or_else(|| {
        eprintln!("usage: history_client ORDERS; run scripts/soak or the tests instead");
        std::process::exit(2);
    }));
}
