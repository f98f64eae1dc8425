//! The limits of a site, by which controller and nodes agree.

use config::{Site, Watch};
use watch::Limits;

/// The limits that the site file states.
pub fn limits(site: &Site) -> Limits {
    let Watch { freeze_s, lease_s, set_down_per_minute, .. } = site.watch;
    Limits { detect_s: site.controller.detect_s, freeze_s, lease_s, set_down_per_minute }
}
