//! The page's files, compiled into the program.

/// A file of the page.
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) media: &'static str,
    pub(crate) bytes: &'static [u8],
}

/// The client of job streams, the same that other pages use.
const CLIENT: File = File {
    name: "job-events.js",
    media: "text/javascript; charset=utf-8",
    bytes: include_bytes!("../../docs/job-events.js"),
};

macro_rules! files {
    ($($name:literal $media:literal,)*) => {
        /// The files under `/playground/`; the first is also served at `/`.
        pub(crate) const FILES: &[File] = &[$(
            File { name: $name, media: $media, bytes: include_bytes!(concat!("../page/", $name)) },
        )*
            CLIENT,
        ];
    };
}

files! {
    "index.html" "text/html; charset=utf-8",
    "style.css" "text/css; charset=utf-8",
    "icon.svg" "image/svg+xml",
    "api.js" "text/javascript; charset=utf-8",
    "app.js" "text/javascript; charset=utf-8",
    "bus.js" "text/javascript; charset=utf-8",
    "chat.js" "text/javascript; charset=utf-8",
    "dom.js" "text/javascript; charset=utf-8",
    "follow.js" "text/javascript; charset=utf-8",
    "keys.js" "text/javascript; charset=utf-8",
    "last.js" "text/javascript; charset=utf-8",
    "ledger.js" "text/javascript; charset=utf-8",
    "live.js" "text/javascript; charset=utf-8",
    "lock.js" "text/javascript; charset=utf-8",
    "phone.js" "text/javascript; charset=utf-8",
    "rows.js" "text/javascript; charset=utf-8",
    "stages.js" "text/javascript; charset=utf-8",
    "tabs.js" "text/javascript; charset=utf-8",
    "weather.js" "text/javascript; charset=utf-8",
    "words.js" "text/javascript; charset=utf-8",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let mut there: Vec<String> = std::fs::read_dir(page)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut served: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        there.push(CLIENT.name.to_owned());
        there.sort_unstable();
        served.sort_unstable();
        assert_eq!(served, there);
    }
}
