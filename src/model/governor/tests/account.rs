//! What shuts an account and what opens it.

use tokio::time::{Instant, advance};

use super::{
    super::{Account, Governor, LatchReason, Latched, Rates},
    secs,
};

fn latched(reason: LatchReason, seconds: Option<u64>) -> Latched {
    Latched { reason, until: seconds.map(|seconds| Instant::now() + secs(seconds)), said: "no".into() }
}

#[tokio::test(start_paused = true)]
async fn it_opens_when_its_time_has_come() {
    let account = Account::new("a");
    let latch = latched(LatchReason::Quota, Some(90));
    assert!(account.shut(latch.clone()));
    assert_eq!(account.latch(), Some(latch));
    advance(secs(90)).await;
    assert_eq!(account.latch(), None);
    assert!(!account.open(), "it was open already");
}

#[tokio::test(start_paused = true)]
async fn a_latch_without_a_time_is_opened_by_hand_alone() {
    let account = Account::new("a");
    account.shut(latched(LatchReason::Quota, None));
    advance(secs(1_000_000)).await;
    assert!(account.latch().is_some());
    assert!(account.open());
    assert_eq!(account.latch(), None);
}

#[tokio::test(start_paused = true)]
async fn a_latch_gives_way_to_one_that_lasts_longer() {
    let account = Account::new("a");
    let kept = |latch: Latched| {
        assert!(!account.shut(latch.clone()), "it was shut");
        account.latch() == Some(latch)
    };
    account.shut(latched(LatchReason::RateLimit, Some(100)));
    assert!(!kept(latched(LatchReason::RateLimit, Some(50))));
    assert!(kept(latched(LatchReason::RateLimit, Some(200))));
    assert!(!kept(latched(LatchReason::Quota, Some(150))));
    assert!(kept(latched(LatchReason::Quota, Some(300))));
    assert!(kept(latched(LatchReason::Quota, None)));
    assert!(!kept(latched(LatchReason::Quota, Some(1_000))));
}

#[tokio::test(start_paused = true)]
async fn an_account_of_the_scripted_model_never_shuts() {
    let account = Account::lone("a");
    assert!(!account.shut(latched(LatchReason::Quota, None)));
    assert!(!account.rejected("no") && !account.rejected("no"));
    assert_eq!(account.latch(), None);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_run_out_gives_way_to_any() {
    let account = Account::new("a");
    account.shut(latched(LatchReason::RateLimit, Some(10)));
    advance(secs(10)).await;
    let next = latched(LatchReason::RateLimit, Some(1));
    assert!(account.shut(next.clone()), "it was open");
    assert_eq!(account.latch(), Some(next));
}

#[tokio::test(start_paused = true)]
async fn the_second_rejection_in_a_row_shuts_it() {
    let account = Account::new("a");
    assert!(!account.rejected("bad key"));
    assert_eq!(account.latch(), None);
    assert!(account.rejected("bad key"));
    let latch = Latched { reason: LatchReason::Auth, until: None, said: "bad key".into() };
    assert_eq!(account.latch(), Some(latch.clone()));
    assert!(account.rejected("still bad"));
    assert_eq!(account.latch(), Some(latch));
}

#[tokio::test(start_paused = true)]
async fn an_answer_or_a_hand_between_two_rejections_makes_each_the_first() {
    let account = Account::new("a");
    let governor = Governor::new(account.clone(), Rates::default());
    account.rejected("no");
    let mut permit = governor.admit().await;
    permit.send(1).await;
    permit.answered(1);
    assert!(!account.rejected("no"));
    account.open();
    assert!(!account.rejected("no"));
    assert!(account.rejected("no"));
}

#[tokio::test(start_paused = true)]
async fn whoever_watches_is_told_of_every_change_and_of_nothing_else() {
    let account = Account::new("a");
    let mut changes = account.changes();
    let latch = latched(LatchReason::Quota, Some(60));
    account.shut(latch.clone());
    assert!(changes.has_changed().unwrap());
    assert_eq!(*changes.borrow_and_update(), Some(latch.clone()));
    account.shut(latch);
    account.rejected("no");
    assert!(!changes.has_changed().unwrap());
    account.open();
    assert_eq!(*changes.borrow_and_update(), None);
    account.open();
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn that_a_person_has_opened_it_is_known_until_it_shuts_again() {
    let account = Account::new("a");
    let mut changes = account.changes();
    assert!(!account.is_opened());
    assert!(!account.open(), "nothing that is known here was shut");
    assert!(
        account.is_opened() && changes.has_changed().expect("alive"),
        "those who wait from before are told"
    );
    changes.mark_unchanged();
    assert!(!account.open() && !changes.has_changed().expect("alive"), "once");
    account.shut(latched(LatchReason::Quota, Some(90)));
    assert!(!account.is_opened());
    advance(secs(90)).await;
    assert!(account.latch().is_none() && !account.is_opened(), "its time had come");
}
