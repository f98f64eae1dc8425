//! Orders of people on the driver's desk: each is heard once, answered once, and remembered in the journal.

use protection::clock;
use protocol::{Event, FailureKind, Order, OrderState, OrderedCheckpoint, Verb};
use std::collections::BTreeMap;

/// What lies on the desk.
#[derive(Debug, Default)]
pub struct Desk {
    waiting: Vec<Order>,
    restarts: Vec<Order>,
    /// Orders that were heard; with their answer as soon as there is one.
    known: BTreeMap<String, Option<Event>>,
    disabled_by: Option<String>,
    /// The run's nodes go back to who lent them: whoever requeues it does so because of that.
    is_preempted: bool,
}

/// Why a run is put back into the queue when the checkpoint of an order is complete; none of them for other orders.
pub fn leaving(order: &Order) -> Option<(FailureKind, String)> {
    match order.verb {
        Verb::Vacate => {
            let until = order.begin_s.map_or(String::new(), |begin_s| format!(", until {}", clock(begin_s)));
            Some((FailureKind::Requeued, format!("vacated on the order of {}{until}", order.by)))
        }
        Verb::Preempt => Some((FailureKind::Preempted, format!("the nodes of loan {} are needed back", order.by))),
        Verb::Checkpoint | Verb::Restart | Verb::Enable | Verb::Disable => None,
    }
}

impl Desk {
    /// The desk as earlier wrappers of the run left it, from the orders in its journal.
    pub fn resume(answered: &[Event]) -> Desk {
        let mut desk = Desk::default();
        for event in answered {
            let Event::Ordered { id, verb, by, state, .. } = event else { continue };
            // An answer that was repeated does not take effect again.
            let is_first = desk.known.insert(id.clone(), Some(event.clone())).is_none();
            if is_first && *state == OrderState::Done {
                desk.set(*verb, by);
            }
        }
        desk
    }

    /// Who ordered that no checkpoints are made.
    pub fn disabled_by(&self) -> Option<&str> {
        self.disabled_by.as_deref()
    }

    /// Why the run was ended from outside: one that was told that its nodes go back is requeued because of that.
    pub fn cause(&self, kind: FailureKind) -> FailureKind {
        if self.is_preempted && kind == FailureKind::Requeued { FailureKind::Preempted } else { kind }
    }

    /// Whether somebody waits for a checkpoint.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether somebody wants the program started again.
    pub fn wants_restart(&self) -> bool {
        !self.restarts.is_empty()
    }

    /// Answers those who wanted the program started again, now that it will be.
    pub fn restarted(&mut self, from: Option<u64>) -> Vec<Event> {
        let text = from.map_or_else(
            || "it starts again from its beginning: there is no checkpoint".to_string(),
            |number| format!("it starts again from checkpoint {number}"),
        );
        let restarts = std::mem::take(&mut self.restarts);
        restarts.iter().map(|order| self.answer(order, OrderState::Done, &text, None)).collect()
    }

    /// Takes an order in; what can be answered at once is, and an order heard before is answered as before.
    pub fn hear(&mut self, order: Order, on_demand: bool) -> Option<Event> {
        if let Some(before) = self.known.get(&order.id) {
            return before.clone();
        }
        self.known.insert(order.id.clone(), None);
        self.is_preempted |= order.verb == Verb::Preempt;
        match order.verb {
            Verb::Enable | Verb::Disable => {
                self.set(order.verb, &order.by);
                let text = if order.verb == Verb::Enable { "checkpoints are made" } else { "no further checkpoints" };
                Some(self.answer(&order, OrderState::Done, text, None))
            }
            Verb::Restart => {
                self.restarts.push(order);
                None
            }
            Verb::Checkpoint | Verb::Vacate | Verb::Preempt => match self.hindrance(on_demand) {
                Some(text) => Some(self.answer(&order, OrderState::Failed, &text, None)),
                None => {
                    self.waiting.push(order);
                    None
                }
            },
        }
    }

    fn set(&mut self, verb: Verb, by: &str) {
        match verb {
            Verb::Enable => self.disabled_by = None,
            Verb::Disable => self.disabled_by = Some(by.to_string()),
            Verb::Checkpoint | Verb::Vacate | Verb::Preempt | Verb::Restart => {}
        }
    }

    fn hindrance(&self, on_demand: bool) -> Option<String> {
        if let Some(by) = &self.disabled_by {
            return Some(format!("checkpoints are disabled by {by}; joulepoint enable JOB comes first"));
        }
        let cure = "the program cannot be asked for a checkpoint; submit with --ft-energy-signal=SIG";
        (!on_demand).then(|| cure.to_string())
    }

    /// Answers that nothing is started again, for a reason.
    pub fn refuse_restarts(&mut self, why: &str) -> Vec<Event> {
        let restarts = std::mem::take(&mut self.restarts);
        self.fail(&restarts, why)
    }

    /// The orders that the checkpoint now beginning is for.
    pub fn take(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.waiting)
    }

    /// Orders whose checkpoint was given up for a reason of its own wait for the next one.
    pub fn put_back(&mut self, orders: Vec<Order>) {
        self.waiting.extend(orders);
    }

    /// What came of an order.
    pub fn answer(
        &mut self,
        order: &Order,
        state: OrderState,
        text: &str,
        checkpoint: Option<OrderedCheckpoint>,
    ) -> Event {
        tracing::info!(id = order.id, verb = order.verb.as_str(), by = order.by, text, "an order is answered");
        let event = Event::Ordered {
            id: order.id.clone(),
            verb: order.verb,
            by: order.by.clone(),
            state,
            text: text.to_string(),
            checkpoint,
        };
        self.known.insert(order.id.clone(), Some(event.clone()));
        event
    }

    /// Answers that orders will not be done.
    pub fn fail(&mut self, orders: &[Order], text: &str) -> Vec<Event> {
        orders.iter().map(|order| self.answer(order, OrderState::Failed, text, None)).collect()
    }

    /// The same for all that still wait.
    pub fn fail_waiting(&mut self, text: &str) -> Vec<Event> {
        let mut waiting = self.take();
        waiting.append(&mut self.restarts);
        self.fail(&waiting, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: &str, verb: Verb) -> Order {
        Order { id: id.into(), verb, by: "alice".into(), begin_s: None }
    }

    fn state(event: Option<Event>) -> Option<OrderState> {
        match event? {
            Event::Ordered { state, .. } => Some(state),
            _ => None,
        }
    }

    #[test]
    fn disabled_lasts_beyond_a_wrapper_and_ends_with_enable() {
        let mut desk = Desk::default();
        let disabled = desk.hear(order("a", Verb::Disable), true);
        assert_eq!(state(disabled.clone()), Some(OrderState::Done));
        let mut next = Desk::resume(&disabled.into_iter().collect::<Vec<_>>());
        assert_eq!(next.disabled_by(), Some("alice"));
        assert_eq!(state(next.hear(order("b", Verb::Vacate), true)), Some(OrderState::Failed));
        assert_eq!(state(next.hear(order("c", Verb::Enable), true)), Some(OrderState::Done));
        assert_eq!(next.hear(order("d", Verb::Checkpoint), true), None);
        assert!(next.is_waiting());
    }

    #[test]
    fn an_order_is_heard_once_and_its_answer_repeated() {
        let mut desk = Desk::default();
        assert_eq!(desk.hear(order("a", Verb::Checkpoint), true), None);
        assert_eq!(desk.hear(order("a", Verb::Checkpoint), true), None);
        let orders = desk.take();
        assert_eq!(orders.len(), 1);
        let answer = desk.answer(&orders[0], OrderState::Done, "made", None);
        assert_eq!(desk.hear(order("a", Verb::Checkpoint), true), Some(answer));
        assert!(!desk.is_waiting());
    }

    #[test]
    fn a_run_whose_nodes_go_back_is_preempted_whoever_requeues_it() {
        let mut desk = Desk::default();
        assert_eq!(desk.cause(FailureKind::Requeued), FailureKind::Requeued);
        assert_eq!(
            state(desk.hear(order("a", Verb::Preempt), false)),
            Some(OrderState::Failed),
            "it cannot checkpoint"
        );
        assert_eq!(desk.cause(FailureKind::Requeued), FailureKind::Preempted);
        assert_eq!(desk.cause(FailureKind::Node), FailureKind::Node);
        let kind = |verb| leaving(&order("b", verb)).map(|(kind, _)| kind);
        assert_eq!(kind(Verb::Preempt), Some(FailureKind::Preempted));
        assert_eq!((kind(Verb::Vacate), kind(Verb::Checkpoint)), (Some(FailureKind::Requeued), None));
    }

    #[test]
    fn a_restart_is_answered_when_it_happens_and_not_before() {
        let mut desk = Desk::default();
        assert_eq!(desk.hear(order("a", Verb::Restart), false), None);
        assert!(desk.wants_restart());
        let answers = desk.restarted(Some(3));
        assert_eq!((answers.len(), state(answers.into_iter().next())), (1, Some(OrderState::Done)));
        assert!(!desk.wants_restart());
    }

    #[test]
    fn a_program_that_cannot_be_asked_says_so() {
        assert_eq!(state(Desk::default().hear(order("a", Verb::Checkpoint), false)), Some(OrderState::Failed));
    }
}
