//! A process that edits: told on standard input to go, it sends so many edits of one field of a user's last
//! transaction, one after another, and prints how many were answered 200.
//!
//! ```text
//! STORE=redis REDIS_URL=… EDIT_API_TOKEN=t editor U123 品項 50
//! ```
#![allow(clippy::print_stdout, reason = "its answer goes to standard output")]

use std::error::Error;

use edit_last_transaction::EditLastTransaction;
use http::Request;
use onetap_config::Variables;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, user, field, times] = &arguments[..] else { return Err("whose, which field, how often?".into()) };
    let token = std::env::var("EDIT_API_TOKEN")?;
    let function = EditLastTransaction::from_variables(&Variables::from_env())?;
    std::io::stdin().read_line(&mut String::new())?;
    let mut succeeded = 0;
    for time in 1..=times.parse::<u32>()? {
        let request = Request::builder()
            .method("PATCH")
            .uri(format!("/users/{user}/last-transaction"))
            .header("authorization", format!("Bearer {token}"))
            .body(format!(r#"{{"{field}":"{field} {time}"}}"#))?;
        let answer = function.handle(request).await;
        if answer.status() == 200 {
            succeeded += 1;
        } else {
            eprintln!("{}", answer.body());
        }
    }
    println!("{succeeded}");
    Ok(())
}
