//! The clock of a service against the clock of this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than this between two clocks is a fault of one of them.
pub(crate) const MAX_SKEW: Duration = Duration::from_secs(1);

/// By how much a service's clock is ahead of this machine's, in milliseconds; negative is behind. `resolution` is the
/// unit that the service cuts its time to. Where the difference could be the journey or the cut, it is 0.
pub(crate) fn skew_millis(
    service: Duration,
    resolution: Duration,
    sent: SystemTime,
    received: SystemTime,
) -> i64 {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let since = |time: SystemTime| millis(time.duration_since(UNIX_EPOCH).unwrap_or_default());
    // The service read its clock after the request was sent and before the answer came, and then cut the time.
    let (earliest, latest) = (millis(service), millis(service) + millis(resolution));
    if latest < since(sent) {
        latest - since(sent)
    } else if earliest > since(received) {
        earliest - since(received)
    } else {
        0
    }
}

/// The difference in words.
pub(crate) fn describe(skew_millis: i64) -> String {
    let seconds = skew_millis.unsigned_abs() as f64 / 1000.0;
    match skew_millis {
        0 => "no difference beyond the journey of a request".to_owned(),
        1.. => format!("the service's clock is {seconds:.1} s ahead of this one"),
        _ => format!("the service's clock is {seconds:.1} s behind this one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journey_and_the_cut_are_no_skew() {
        let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(millis);
        let skew = |service: u64, resolution: u64, sent: u64, received: u64| {
            let [service, resolution] = [service, resolution].map(Duration::from_millis);
            skew_millis(service, resolution, at(sent), at(received))
        };
        assert_eq!(skew(5_000, 0, 4_900, 5_100), 0);
        // A service that cuts to seconds says 5 s until 5.999 s.
        assert_eq!(skew(5_000, 1_000, 5_900, 5_999), 0);
        assert_eq!(skew(5_000, 0, 7_500, 7_600), -2_500);
        assert_eq!(skew(5_000, 1_000, 7_500, 7_600), -1_500);
        assert_eq!(skew(9_000, 1_000, 7_500, 7_600), 1_400);
        assert_eq!(describe(-1_500), "the service's clock is 1.5 s behind this one");
    }
}
