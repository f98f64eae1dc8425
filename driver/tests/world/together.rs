//! Programs of all groups that do not repeat themselves when one group goes back alone, and lines of all groups.

use super::World;
use driver::groups::ports::News;
use driver::ports::Happening;
use planner::TOGETHER;
use protocol::Event;
use rand::Rng;

impl World {
    /// Whether all groups are to go back together.
    pub fn is_together(&self) -> bool {
        self.journal.iter().any(|e| matches!(e, Event::Decided { action, .. } if action == TOGETHER))
    }

    /// All relays go back to what was saved with a line, or to the beginning.
    pub fn begin_together(&mut self) {
        let line = self.lines.last().copied();
        let newest = |p: &super::Program| p.lines.last().map(|(m, ..)| m.number);
        for p in &mut self.programs {
            assert_eq!(newest(p), line, "a group does not go back to the line of all");
            (p.relay, p.told, p.differs_at) = (None, false, None);
        }
        let of_before = |h: &Happening| matches!(h, Happening::Group(News::Lacking { .. } | News::Differs { .. }));
        self.pending.retain(|h| !of_before(h));
        self.back = Some((line, (0..self.programs.len()).collect()));
        (self.wrong, self.is_open) = (None, false);
        self.together += 1;
        self.to_lines += u64::from(line.is_some());
    }

    /// A group starts from a checkpoint with that progress; from where its relay's log begins. `is_again` if it ran before.
    pub fn goes_on(&mut self, group: usize, from: f64, is_again: bool) -> f64 {
        if !self.gathers {
            return from;
        }
        if let Some((_, left)) = &mut self.back
            && left.remove(&group)
        {
            // What was under way was saved with the line.
            return 0.0;
        }
        assert!(!self.is_together(), "group {group} starts again alone");
        let differs = self.chances.differs;
        if self.wrong == Some(group) || is_again && self.chance(differs) {
            self.programs[group].differs_at = Some(self.now_s + self.rng.random_range(0.1..60.0));
        }
        from
    }
}
