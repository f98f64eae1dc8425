//! Loans in the store: each state in place of the one before, taken up after a crash, told in the run's account.

use super::{batch, both, key, records, spoil, started};
use protocol::{Loan, LoanState, Stay};
use store::account::account;

fn loan(id: &str, state: LoanState, asked_s: f64) -> Loan {
    let example: Loan = serde_json::from_str(include_str!("../../../protocol/tests/loan.json")).expect("a loan");
    Loan {
        id: id.into(),
        name: format!("joulepoint_{id}"),
        key: key("7.1"),
        state,
        state_s: asked_s,
        nodes: vec!["n3".into(), "n4".into()],
        kept: vec!["n1".into(), "n2".into()],
        asked_s,
        return_s: asked_s + 100.0,
        promised_s: asked_s + 100.0,
        lent_s: Some(asked_s + 1.0),
        back_s: None,
        back: Vec::new(),
        time_limit_s: Some(600),
        stays: Vec::new(),
        ..example
    }
}

#[test]
fn a_loan_is_taken_up_in_its_last_state_and_told_by_node_and_borrower() {
    both(|store| {
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1", "n2", "n3", "n4"])])), 1000).expect("stored");
        let mut lent = loan("a", LoanState::Asked, 100.0);
        for state in [LoanState::Asked, LoanState::Shrinking, LoanState::Lent] {
            lent.state = state;
            store.save_lending(&lent).expect("saved");
            assert_eq!(store.lendings(f64::INFINITY).expect("open"), [lent.clone()]);
        }
        let joules = Some(5000.0);
        let stay = |end_s| Stay {
            node: "n3".into(),
            job: 9,
            user: "bob".into(),
            account: "chemistry".into(),
            start_s: 110.0,
            end_s,
            joules,
        };
        lent.stays = vec![stay(None)];
        store.save_lending(&lent).expect("saved");
        let told = account(store.connection(), &lent.key).expect("told").loans;
        assert_eq!((told.len(), told[0].borrower, told[0].end_s), (1, Some(9), None));
        lent.stays = vec![stay(Some(150.0))];
        (lent.state, lent.back_s) = (LoanState::Closed, Some(160.0));
        store.save_lending(&lent).expect("saved");
        assert!(store.lendings(f64::INFINITY).expect("open").is_empty());
        assert_eq!(store.lendings(50.0).expect("past"), [lent.clone()]);
        assert_eq!(store.lending("a").expect("one"), Some(lent.clone()));
        let told = account(store.connection(), &lent.key).expect("told").loans;
        let seen: Vec<_> = told.iter().map(|l| (l.node.as_str(), l.borrower, l.start_s, l.end_s)).collect();
        assert_eq!(seen, [("n4", None, 101.0, Some(160.0)), ("n3", Some(9), 110.0, Some(150.0))]);
    });
}

#[test]
fn a_loan_that_is_not_understood_hides_no_other() {
    both(|store| {
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1", "n2", "n3", "n4"])])), 1000).expect("stored");
        let [a, b] = ["a", "b"].map(|id| loan(id, LoanState::Lent, 100.0));
        store.save_lending(&a).expect("saved");
        store.save_lending(&b).expect("saved");
        spoil(store, "lending WHERE id = 'a'");
        assert_eq!(store.lendings(f64::INFINITY).expect("open"), std::slice::from_ref(&b));
        assert_eq!(store.lending("b").expect("one"), Some(b));
        assert!(store.lending("a").expect_err("it is there").to_string().contains("a loan in the store"));
    });
}
