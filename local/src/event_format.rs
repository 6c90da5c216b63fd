//! The format of Server-Sent Events, as the HTML standard has browsers read it.

use std::time::Duration;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name; `message` if it has none.
    pub name: String,
    /// Its id, if it has one. An empty id clears the reader's last one.
    pub id: Option<String>,
    /// Its data.
    pub data: String,
}

/// Reads a stream, in pieces of any size. An event that the end of the stream cuts off is dropped.
#[derive(Debug, Default)]
pub(crate) struct EventFormat {
    line: Vec<u8>,
    /// The last line ended with `\r`: a `\n` after it belongs to that end.
    after_return: bool,
    name: String,
    id: Option<String>,
    data: Vec<String>,
    retry: Option<Duration>,
}

impl EventFormat {
    /// The events that these bytes complete.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for byte in bytes {
            let follows_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                byte => self.line.push(*byte),
            }
        }
        events
    }

    /// The delay before a reconnect that the stream has asked for last.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push(value.to_owned()),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // A comment, which has no field name, or a field that nobody knows.
            _ => {}
        }
        None
    }

    /// Nothing without data. An id of such a block is that of the next event.
    fn end_event(&mut self) -> Option<Event> {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if data.is_empty() {
            return None;
        }
        let name = if name.is_empty() { "message".to_owned() } else { name };
        Some(Event { name, id: self.id.take(), data: data.join("\n") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Event> {
        EventFormat::default().read(text.as_bytes())
    }

    fn event(name: &str, id: Option<&str>, data: &str) -> Event {
        Event { name: name.to_owned(), id: id.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn an_event_is_read_and_a_comment_is_not() {
        assert_eq!(read("id: 7-1\nevent: gap\ndata: {\ndata: }\n\n"), [event("gap", Some("7-1"), "{\n}")]);
        assert_eq!(read(": keep-alive\n\nretry: 1000\n\n"), []);
        assert_eq!(
            read("id:\ndata:  x\n\ndata\n\n"),
            [event("message", Some(""), " x"), event("message", None, "")]
        );
    }

    #[test]
    fn it_does_not_matter_how_lines_end_or_where_a_stream_is_cut_into_pieces() {
        let events = [event("message", Some("1-0"), "a\nb"), event("message", None, "明")];
        for end in ["\n", "\r", "\r\n"] {
            let text = "id: 1-0|data: a|data: b||:c|data: 明||data: half".replace('|', end);
            for size in 1..text.len() {
                let mut format = EventFormat::default();
                let read: Vec<Event> =
                    text.as_bytes().chunks(size).flat_map(|piece| format.read(piece)).collect();
                assert_eq!(read, events, "{end:?} {size}");
            }
        }
    }

    #[test]
    fn the_last_delay_counts_if_it_is_a_number() {
        let mut format = EventFormat::default();
        assert_eq!(format.retry(), None);
        assert_eq!(format.read(b"retry: 1000\n\nretry: 2500\nretry: soon\nretry: -1\nretry:\n\n"), []);
        assert_eq!(format.retry(), Some(Duration::from_millis(2500)));
    }
}
