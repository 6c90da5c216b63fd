//! The clock of a service against the clock of this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than this between two clocks is a fault of one of them.
pub(crate) const MAX_SKEW: Duration = Duration::from_secs(1);

/// By how much a service's clock is ahead of this machine's, in milliseconds; negative is behind. It is known up to the
/// time of a request and the unit that the service cuts its time to; each sample narrows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Skew {
    least: i64,
    most: i64,
}

impl Skew {
    /// Of one answer, with the service's time in it.
    pub(crate) fn new(
        service: Duration,
        resolution: Duration,
        sent: SystemTime,
        received: SystemTime,
    ) -> Skew {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let since = |time: SystemTime| millis(time.duration_since(UNIX_EPOCH).unwrap_or_default());
        // The service read its clock after the request was sent and before the answer came, and then cut the time.
        Skew {
            least: millis(service) - since(received),
            most: millis(service) + millis(resolution) - since(sent),
        }
    }

    /// What both samples allow.
    pub(crate) fn and(self, other: Skew) -> Skew {
        Skew { least: self.least.max(other.least), most: self.most.min(other.most) }
    }

    /// The smallest difference that is certain; 0 where there may be none.
    pub(crate) fn certain_millis(self) -> i64 {
        if self.least > 0 { self.least } else { self.most.min(0) }
    }

    /// Whether the difference is certainly a fault.
    pub(crate) fn is_too_large(self) -> bool {
        u128::from(self.certain_millis().unsigned_abs()) > MAX_SKEW.as_millis()
    }
}

/// The difference in words.
pub(crate) fn describe(skew: Skew) -> String {
    let millis = skew.certain_millis();
    let seconds = millis.unsigned_abs() as f64 / 1000.0;
    match millis {
        0 => "within the time of one request".to_owned(),
        1.. => format!("the service's clock is at least {seconds:.1} s ahead of this one"),
        _ => format!("the service's clock is at least {seconds:.1} s behind this one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_request_and_the_cut_are_no_skew() {
        let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(millis);
        let skew = |service: u64, resolution: u64, sent: u64, received: u64| {
            let [service, resolution] = [service, resolution].map(Duration::from_millis);
            Skew::new(service, resolution, at(sent), at(received))
        };
        let millis =
            |service, resolution, sent, received| skew(service, resolution, sent, received).certain_millis();
        assert_eq!(millis(5_000, 0, 4_900, 5_100), 0);
        // A service that cuts to seconds says 5 s until 5.999 s.
        assert_eq!(millis(5_000, 1_000, 5_900, 5_999), 0);
        assert_eq!(millis(5_000, 0, 7_500, 7_600), -2_500);
        assert_eq!(millis(5_000, 1_000, 7_500, 7_600), -1_500);
        assert_eq!(millis(9_000, 1_000, 7_500, 7_600), 1_400);
        let behind = skew(5_000, 1_000, 7_500, 7_600);
        assert_eq!(describe(behind), "the service's clock is at least 1.5 s behind this one");
        // Two samples on both sides of the second at which the service says 9 s instead of 8 s.
        let ahead = skew(8_000, 1_000, 7_390, 7_400).and(skew(9_000, 1_000, 7_500, 7_510));
        assert_eq!((ahead.least, ahead.most), (1_490, 1_610));
        assert!(ahead.is_too_large());
    }
}
