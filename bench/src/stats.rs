//! Medians, and how far the rounds lay apart.

use serde::{Deserialize, Serialize};

/// The value below which `part` (0 to 1) of them lie. Sorts them; zero if there are none.
pub fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((part * last as f64).round() as usize).copied().unwrap_or_default()
}

/// The middle value; of an even number of values the mean of the two middle ones. Sorts them; zero if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values {
        [] => 0.0,
        _ => (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0,
    }
}

/// The median of several rounds, and the lowest and highest of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The [`median`].
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// Of these rounds.
    pub fn of(rounds: impl IntoIterator<Item = f64>) -> Spread {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        Spread {
            median: median(&mut rounds),
            low: quantile(&mut rounds, 0.0),
            high: quantile(&mut rounds, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { median: 2.0, low: 1.0, high: 3.0 });
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_two_middle_ones() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(Spread::of([1.0, 9.0]), Spread { median: 5.0, low: 1.0, high: 9.0 });
        assert_eq!(median(&mut [7.0]), 7.0);
        assert_eq!(median(&mut []), 0.0);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.99), 99.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }
}
