//! What energy costs, by the site's price and the carbon of its electricity.

use config::Accounting;
use serde::Serialize;

/// Joules of a kilowatt-hour.
pub const KWH_J: f64 = 3.6e6;

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
        let price = self.price.map(|price| format!("{price:.2} {currency}"));
        let co2 = self.co2_g.map(|g| match g {
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
    /// Of energies, J.
    pub fn of(joules: Option<f64>, resilience_j: Option<f64>, site: &Accounting) -> Costs {
        Costs {
            whole: joules.map(|j| Cost::of(j, site)),
            resilience: resilience_j.map(|j| Cost::of(j, site)),
            currency: site.price_per_kwh.map(|_| site.currency.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_and_a_carbon_factor_are_told_where_the_site_names_them_and_absent_else() {
        let site = Accounting { price_per_kwh: Some(0.3), currency: "EUR".into(), co2_g_per_kwh: Some(400.0) };
        let cost = Cost::of(36e6, &site);
        assert_eq!((cost.kwh, cost.price, cost.co2_g), (10.0, Some(3.0), Some(4000.0)));
        assert_eq!(cost.told("EUR").as_deref(), Some("3.00 EUR, 4.00 kg CO2"));
        let silent = Costs::of(Some(36e6), None, &Accounting::default());
        assert_eq!(silent.whole.and_then(|c| c.told("")), None);
        let json = serde_json::to_value(&silent).expect("JSON");
        assert_eq!(json, serde_json::json!({ "whole": { "kwh": 10.0 }, "resilience": null }));
    }
}
