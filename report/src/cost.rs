//! What energy costs, by the site's price and the carbon of its electricity.

use config::Accounting;
use protocol::{Bill, Totals};
use serde::Serialize;
use tariff::KWH_J;

/// Some energy, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Energy, kWh.
    pub kwh: f64,
    /// Its price, in the site's currency; absent where the site names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// Carbon dioxide, g; absent where the site names no factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub co2_g: Option<f64>,
}

impl Cost {
    /// Of some energy, J.
    pub fn of(joules: f64, site: &Accounting) -> Cost {
        let kwh = joules / KWH_J;
        Cost { kwh, price: site.price_per_kwh.map(|p| p * kwh), co2_g: site.co2_g_per_kwh.map(|g| g * kwh) }
    }

    /// Price and carbon as people read them; nothing if the site names neither.
    pub fn told(&self, currency: &str) -> Option<String> {
        // A sum of nothing is a negative zero.
        let price = self.price.map(|price| format!("{:.2} {currency}", price + 0.0));
        let co2 = self.co2_g.map(|g| match g + 0.0 {
            g if g >= 1e6 => format!("{:.2} t CO2", g / 1e6),
            g if g >= 1e3 => format!("{:.2} kg CO2", g / 1e3),
            g => format!("{g:.1} g CO2"),
        });
        let all: Vec<String> = price.into_iter().chain(co2).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// What a run, or several, cost; absent where their energy is not known yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// All of it.
    pub whole: Option<Cost>,
    /// What resilience cost of it.
    pub resilience: Option<Cost>,
    /// Currency of the prices; empty where the site names none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub currency: String,
}

impl Costs {
    /// Of a run: by the site's tariff, where the controller has one, else by its price for all times.
    pub fn of(total: &Totals, site: &Accounting) -> Costs {
        let cost = |joules: Option<f64>, bill: Option<Bill>| {
            let flat = Cost::of(joules?, site);
            Some(bill.map_or(flat, |Bill { price, co2_g, .. }| Cost { price, co2_g, ..flat }))
        };
        Costs {
            whole: cost(total.joules, total.bill),
            resilience: cost(total.resilience_j, total.resilience_bill),
            currency: site.currency.clone(),
        }
    }

    /// Adds those of another run: what is not known of one of them is not known of both.
    pub fn add(&mut self, other: &Costs) {
        let both = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        let add = |sum: &mut Option<Cost>, more: Option<Cost>| {
            *sum = match (*sum, more) {
                (Some(a), Some(b)) => {
                    let (price, co2_g) = (both(a.price, b.price), both(a.co2_g, b.co2_g));
                    Some(Cost { kwh: a.kwh + b.kwh, price, co2_g })
                }
                (a, b) => a.or(b),
            };
        };
        add(&mut self.whole, other.whole);
        add(&mut self.resilience, other.resilience);
        self.currency.clone_from(&other.currency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_and_a_carbon_factor_are_told_where_the_site_names_them_and_absent_else() {
        let flat = (Some(0.3), Some(400.0));
        let site = Accounting {
            price_per_kwh: flat.0,
            currency: "EUR".into(),
            co2_g_per_kwh: flat.1,
            ..Accounting::default()
        };
        let cost = Cost::of(36e6, &site);
        assert_eq!((cost.kwh, cost.price, cost.co2_g), (10.0, Some(3.0), Some(4000.0)));
        assert_eq!(cost.told("EUR").as_deref(), Some("3.00 EUR, 4.00 kg CO2"));
        assert_eq!(
            Cost { price: Some(-0.0), ..Cost::of(0.0, &site) }.told("EUR").as_deref(),
            Some("0.00 EUR, 0.0 g CO2")
        );
        let total = Totals { joules: Some(36e6), ..Totals::default() };
        let silent = Costs::of(&total, &Accounting::default());
        assert_eq!(silent.whole.and_then(|c| c.told("")), None);
        let json = serde_json::to_value(&silent).expect("JSON");
        assert_eq!(json, serde_json::json!({ "whole": { "kwh": 10.0 }, "resilience": null }));
    }

    #[test]
    fn a_tariff_comes_before_the_price_of_all_times_and_what_it_does_not_know_is_not_made_up() {
        let site = Accounting { price_per_kwh: Some(0.3), currency: "EUR".into(), ..Accounting::default() };
        let bill = |price| Some(Bill { price, co2_g: Some(5.0), is_by_hours: true });
        let total = |price| Totals { joules: Some(3.6e6), bill: bill(price), ..Totals::default() };
        let mut sum = Costs::default();
        let whole = |costs: &Costs| costs.whole.map(|c| (c.kwh, c.price, c.co2_g));
        sum.add(&Costs::of(&total(Some(0.1)), &site));
        sum.add(&Costs::of(&Totals::default(), &site));
        assert_eq!(whole(&sum), Some((1.0, Some(0.1), Some(5.0))));
        sum.add(&Costs::of(&total(None), &site));
        assert_eq!(whole(&sum), Some((2.0, None, Some(10.0))));
        assert_eq!((sum.resilience, sum.currency.as_str()), (None, "EUR"));
    }
}
