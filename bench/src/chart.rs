//! The picture in the README: five panels, drawn by hand, legible on light and on dark.

use std::fmt::Write;

use crate::report::{Report, Row};

const WIDTH: f64 = 960.0;
const PANEL: f64 = 460.0;
const LINE: f64 = 22.0;
/// Of a bar: how wide its name may be, and the longest bar.
const NAMES: f64 = 195.0;
const ROOM: f64 = 175.0;

const STYLE: &str = "
  .card { fill: #ffffff; } text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; font-size: 15px; } .note { fill: #59636e; font-size: 12px; }
  .ours { fill: #0969da; } .other { fill: #9198a1; } .axis { stroke: #d1d9e0; } .goal { stroke: #cf222e; stroke-dasharray: 4 3; }
  .a { stroke: #0969da; } .b { stroke: #1a7f37; } .c { stroke: #9a6700; } .d { stroke: #8250df; }
  .curve { fill: none; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; } text { fill: #e6edf3; } .note { fill: #9198a1; }
    .ours { fill: #4493f8; } .other { fill: #656c76; } .axis { stroke: #3d444d; } .goal { stroke: #f85149; }
    .a { stroke: #4493f8; } .b { stroke: #3fb950; } .c { stroke: #d29922; } .d { stroke: #ab7df8; }
  }
";

/// An SVG of the report.
pub fn draw(report: &Report) -> String {
    let store = round_trips(report);
    let speed = throughput(report).above(batches(report));
    let start = starts(report);
    let scale = curves(report);
    let left = store.height.max(scale.height);
    let (left_below, right_below) =
        (store.height.max(speed.height) + 40.0, store.height.max(speed.height) + 40.0);
    let height = left_below.max(left) + start.height.max(scale.height) + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"onetap against the floor and against its peers\">\n<style>{STYLE}</style>\n\
         <rect class=\"card\" width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"8\"/>\n"
    );
    for (panel, x, y) in [
        (&store, 20.0, 20.0),
        (&speed, WIDTH / 2.0 + 10.0, 20.0),
        (&start, 20.0, left_below),
        (&scale, WIDTH / 2.0 + 10.0, right_below),
    ] {
        let _ = writeln!(svg, "<g transform=\"translate({x} {y:.0})\">\n{}</g>", panel.svg);
    }
    svg + "</svg>\n"
}

/// A part of the picture.
struct Panel {
    svg: String,
    height: f64,
}

impl Panel {
    fn new(title: &str, note: &str) -> Panel {
        let mut panel = Panel { svg: String::new(), height: 0.0 };
        panel.text(0.0, 15.0, "title", title);
        panel.text(0.0, 33.0, "note", note);
        panel.height = 46.0;
        panel
    }

    /// Both, one above the other. A panel without bars takes no room.
    fn above(mut self, below: Panel) -> Panel {
        if below.height > Panel::new("", "").height {
            let y = self.height + 20.0;
            let _ = writeln!(self.svg, "<g transform=\"translate(0 {y:.0})\">\n{}</g>", below.svg);
            self.height = y + below.height;
        }
        self
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>");
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.svg,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A bar of `part` of the room, with words before and behind it; behind it means behind `goal` too.
    fn bar(&mut self, name: &str, class: &str, part: f64, goal: f64, value: &str) {
        let y = self.height;
        self.text(0.0, y + 13.0, "", name);
        let width = (part.clamp(0.0, 1.0) * ROOM).max(1.5);
        let _ = writeln!(
            self.svg,
            "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" rx=\"2\"/>",
            y + 2.0
        );
        self.text(NAMES + width.max(goal * ROOM) + 6.0, y + 13.0, "", value);
        self.height += LINE;
    }
}

/// The end of a scale: the highest of the values, and at least `least`.
fn highest(least: f64, values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(least, f64::max)
}

/// Ours against one bare round trip.
fn round_trips(report: &Report) -> Panel {
    let mut panel = Panel::new(
        "One call, against the bare round trip",
        "p50, same server and same bytes; dashed: the aim, 1.15 ×",
    );
    let top = panel.height;
    let shown = ["get", "lock, acquire + release", "execute, first", "execute, replay", "edit", "publish"];
    const AIM: f64 = 1.15;
    let mut ratios = Vec::new();
    for store in ["redis", "upstash", "dynamodb"] {
        for call in shown {
            let name = format!("{store}: {call}");
            let found = report.section("store").find(|row| row.name == name);
            ratios.extend(found.and_then(|row| Some((name, row.ratio?.median))));
        }
    }
    let most = highest(AIM, ratios.iter().map(|(_, ratio)| *ratio));
    for (name, ratio) in ratios {
        let name = name.replace(", acquire + release", "");
        panel.bar(&name, "ours", ratio / most, AIM / most, &format!("{ratio:.2} ×"));
    }
    let goal = NAMES + ROOM * AIM / most;
    panel.line("goal", (goal, top), (goal, panel.height));
    panel
}

/// Idempotent calls a second by 64 callers.
fn throughput(report: &Report) -> Panel {
    let panel = Panel::new("Idempotent calls a second, 64 callers", "one process each, the same server");
    peers(panel, report, "execute, first, 64 callers")
}

/// SQS messages a second.
fn batches(report: &Report) -> Panel {
    let panel = Panel::new("SQS messages a second, ten a batch", "each handled once; one batch at a time");
    peers(panel, report, "SQS messages in batches of ten")
}

/// Ours and the peers, on the stores that all of them know.
fn peers(mut panel: Panel, report: &Report, what: &str) -> Panel {
    for (store, label) in [("redis", "Redis"), ("dynamodb", "DynamoDB")] {
        let name = format!("{store}: {what}");
        let rows: Vec<&Row> = report
            .section("throughput")
            .filter(|row| row.name == name && row.against.starts_with("Power"))
            .collect();
        let Some(first) = rows.first() else { continue };
        let others = rows.iter().filter_map(|row| Some((row.against.clone(), "other", row.other?)));
        let bars: Vec<_> =
            std::iter::once((format!("{label}: onetap"), "ours", first.ours)).chain(others).collect();
        let most = highest(1.0, bars.iter().map(|(.., rate)| *rate));
        for (name, class, rate) in bars {
            panel.bar(&name, class, rate / most, 0.0, &first.unit.show(rate));
        }
        panel.height += 6.0;
    }
    panel
}

/// From exec to the first poll, and memory.
fn starts(report: &Report) -> Panel {
    let mut panel = Panel::new("Cold start, exec to first poll", "milliseconds, on a logarithmic scale");
    let poll = |prefix: &str, against: &str| {
        let name = format!("{prefix}: exec to first poll");
        report.section("start").find(move |row| row.name == name && row.against == against)
    };
    let webhook = poll("webhook, Upstash", "hello");
    let other = |against: &str| poll("webhook, Upstash", against).and_then(|row| row.other);
    let bars = [
        ("bare hello", "other", webhook.and_then(|row| row.other)),
        ("webhook, Upstash", "ours", webhook.map(|row| row.ours)),
        ("webhook, DynamoDB", "ours", poll("webhook, DynamoDB", "hello").map(|row| row.ours)),
        ("queue-consumer, Upstash", "ours", poll("queue-consumer, Upstash", "hello").map(|row| row.ours)),
        ("Python + Powertools", "other", other("Python")),
        ("Node + Powertools", "other", other("Node")),
    ];
    for (name, class, millis) in bars {
        if let Some(millis) = millis {
            // From 0.5 ms to 1000 ms.
            let part = (millis / 0.5).log10() / (1000.0_f64 / 0.5).log10();
            panel.bar(name, class, part, 0.0, &format!("{millis:.1} ms"));
        }
    }
    panel
}

/// Cost by size.
fn curves(report: &Report) -> Panel {
    let mut panel = Panel::new(
        "Cost of an operation as everything grows",
        "against the smallest; dashed: the aim, 1.2 ×",
    );
    let series = [
        ("a", "lock, keys", "redis: lock, keys: ", 1e3),
        ("b", "execute, keys", "redis: execute, keys: ", 1e3),
        ("c", "publish, events", "redis: publish, events in the stream: ", 1e3),
        ("d", "lock, users at once", "redis: lock, users at once: ", 1e1),
    ];
    let series = series.map(|(class, label, prefix, smallest)| {
        let mut points: Vec<(f64, f64)> = vec![(smallest, 1.0)];
        points.extend(report.section("scale").filter_map(|row| {
            let size: String = row.name.strip_prefix(prefix)?.chars().filter(char::is_ascii_digit).collect();
            Some((size.parse().ok()?, row.ratio?.median))
        }));
        (class, label, points)
    });
    let most = highest(1.6, series.iter().flat_map(|(.., points)| points).map(|(_, ratio)| *ratio));
    let (left, right, top, bottom) = (34.0, PANEL - 165.0, panel.height, panel.height + 190.0);
    let y = |ratio: f64| bottom - ratio / most * (bottom - top);
    let x = |size: f64| left + (size.log10() - 1.0) / 5.0 * (right - left);
    for ratio in (0..).map(|halves| f64::from(halves) / 2.0).take_while(|ratio| *ratio <= most) {
        panel.line("axis", (left, y(ratio)), (right, y(ratio)));
        panel.text(0.0, y(ratio) + 4.0, "note", &format!("{ratio:.1} ×"));
    }
    panel.line("goal", (left, y(1.2)), (right, y(1.2)));
    for (size, label) in [(10.0, "10"), (1e3, "1 k"), (1e5, "100 k"), (1e6, "1 M")] {
        panel.text(x(size) - 4.0 * label.chars().count() as f64, bottom + 16.0, "note", label);
    }
    for (n, (class, label, points)) in series.into_iter().enumerate() {
        let path: Vec<String> =
            points.iter().map(|(size, ratio)| format!("{:.1},{:.1}", x(*size), y(*ratio))).collect();
        let _ = writeln!(panel.svg, "<polyline class=\"curve {class}\" points=\"{}\"/>", path.join(" "));
        let at = top + 12.0 + n as f64 * LINE;
        panel.line(&format!("curve {class}"), (right + 12.0, at - 4.0), (right + 28.0, at - 4.0));
        panel.text(right + 34.0, at, "note", label);
    }
    panel.height = bottom + 30.0;
    panel
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Unit;

    #[test]
    fn a_report_becomes_a_picture_with_its_numbers() {
        let rows = vec![
            Row::compared("store", "redis: get", Unit::Micros, "bare", &[(11.0, 10.0)]),
            Row::compared("scale", "redis: get, keys: 1 000 000", Unit::Micros, "1 000", &[(12.0, 10.0)]),
        ];
        let picture = draw(&Report { rows, ..Report::default() });
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("redis: get") && picture.contains("1.10 ×"));
        assert!(!picture.contains("NaN"));
        assert!(!picture.contains("SQS"), "a panel without rows is not drawn");
    }

    #[test]
    fn no_bar_is_cut() {
        let row = |name: &str, ours| Row::compared("store", name, Unit::Micros, "bare", &[(ours, 10.0)]);
        let rows = vec![row("redis: get", 11.5), row("dynamodb: get", 46.0)];
        let picture = draw(&Report { rows, ..Report::default() });
        for width in [ROOM, ROOM / 4.0] {
            assert!(picture.contains(&format!("width=\"{width:.1}\"")), "{width}: {picture}");
        }
    }

    #[test]
    fn batches_are_drawn_beside_the_peers() {
        let row = |against: &str, theirs| {
            let name = "redis: SQS messages in batches of ten";
            Row::compared("throughput", name, Unit::PerSecond, against, &[(40_000.0, theirs)])
        };
        let rows = vec![row("Powertools Python", 1_700.0), row("Powertools TypeScript", 13_000.0)];
        let picture = draw(&Report { rows, ..Report::default() });
        for shown in ["SQS messages a second", "Redis: onetap", "40 000/s", "1 700/s", "13 000/s"] {
            assert!(picture.contains(shown), "{shown}");
        }
    }
}
