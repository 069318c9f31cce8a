//! The accounts that models are asked by, and how much may be asked of each.
//!
//! Models of one account share its latch and, unless they state rates of their own, its governor. Both outlive a change
//! of the configuration: what is known of a server's limits is not lost by reading a file again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    config::{self, Key, Provider},
    domain::admission::Slots,
    model::governor::{Account, Concurrency, Governor, Rates},
};

/// Every account that was asked for, by its name.
#[derive(Default)]
pub(super) struct Accounts(Mutex<BTreeMap<String, Kept>>);

struct Kept {
    /// A latch that shut for one key says nothing of another.
    key: Key,
    account: Arc<Account>,
    /// How many may ask at once, where no model says otherwise.
    places: Concurrency,
    shared: Arc<Governor>,
    /// Of models with rates of their own, by their names.
    own: BTreeMap<String, (Rates, Arc<Governor>)>,
}

impl Accounts {
    /// The governor of a model: the one that there is, unless its rates or its account's key have changed. Runs that follow
    /// their models have `slots` bound how many ask at once.
    pub(super) fn governor(&self, name: &str, model: &config::Model, slots: Slots) -> Arc<Governor> {
        let places = places(model, slots);
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = accounts.entry(model.account.clone()).or_insert_with(|| Kept::new(model, places));
        if kept.key != model.key {
            *kept = Kept::new(model, places);
        }
        if kept.places != places {
            kept.places = places;
            kept.shared.set_concurrency(places);
        }
        if model.requests_per_minute.is_none()
            && model.tokens_per_minute.is_none()
            && model.max_concurrency.is_none()
        {
            kept.own.remove(name);
            return kept.shared.clone();
        }
        let rates = rates(model, places);
        if let Some((same, governor)) = kept.own.get(name)
            && *same == rates
        {
            return governor.clone();
        }
        let governor = Governor::new(kept.account.clone(), rates.clone());
        kept.own.insert(name.to_owned(), (rates, governor.clone()));
        governor
    }
}

impl Kept {
    fn new(model: &config::Model, places: Concurrency) -> Self {
        let name = model.account.as_str();
        let account = match model.provider {
            // What one script says is of no concern to the others.
            Provider::Scripted => Account::lone(name),
            Provider::Openai | Provider::Anthropic | Provider::Responses => Account::new(name),
        };
        let shared = Governor::new(account.clone(), Rates { concurrency: places, ..Rates::default() });
        Self { key: model.key.clone(), account, places, shared, own: BTreeMap::new() }
    }
}

/// How many may ask an account at once, where no model says otherwise.
fn places(model: &config::Model, slots: Slots) -> Concurrency {
    match (model.provider, slots) {
        // There is no server that could be asked too much.
        (Provider::Scripted, _) => Concurrency::Unlimited,
        (_, Slots::Fixed(_)) => Concurrency::default(),
        (_, Slots::Follow { min, start, max }) => Concurrency::Adaptive { min, start, max },
    }
}

fn rates(model: &config::Model, places: Concurrency) -> Rates {
    let (requests_per_minute, tokens_per_minute) = (model.requests_per_minute, model.tokens_per_minute);
    let concurrency = match (model.max_concurrency, places) {
        (None, places) => places,
        (Some(most), Concurrency::Adaptive { min, start, max }) => {
            let max = max.min(most);
            Concurrency::Adaptive { min: min.min(max), start: start.min(max), max }
        }
        (Some(most), Concurrency::Unlimited | Concurrency::Fixed(_)) => Concurrency::up_to(most),
    };
    Rates { requests_per_minute, tokens_per_minute, concurrency, ..Rates::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources};

    const SLOTS: Slots = Slots::Fixed(std::num::NonZeroUsize::new(100).unwrap());

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("h.toml");
        std::fs::write(&file, text).expect("written");
        crate::config::load(&Sources { file: Some(file), ..Sources::default() }).expect("loads").0
    }

    #[test]
    fn models_of_one_account_share_its_governor_unless_they_have_rates_of_their_own() {
        let accounts = Accounts::default();
        let config = config(
            "[models.a]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\n\
             [models.b]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\n\
             [models.own]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\nrequests_per_minute = 5\n\
             [models.else]\nprovider = \"openai\"\nbase_url = \"http://other/v1\"\n",
        );
        let governor = |name: &str| accounts.governor(name, &config.describe(name).expect("known"), SLOTS);
        assert!(Arc::ptr_eq(&governor("a"), &governor("b")));
        assert!(!Arc::ptr_eq(&governor("a"), &governor("own")));
        assert!(Arc::ptr_eq(&governor("own"), &governor("own")));
        assert!(Arc::ptr_eq(governor("a").account(), governor("own").account()));
        assert!(!Arc::ptr_eq(governor("a").account(), governor("else").account()));
        assert_eq!(&**governor("a").account().name(), "h/v1");
    }

    #[test]
    fn a_reload_keeps_a_governor_until_its_rates_change_and_an_account_until_its_key_does() {
        let accounts = Accounts::default();
        let model = |more: &str| {
            let text = format!("[models.m]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\n{more}");
            config(&text).describe("m").expect("known")
        };
        let five = accounts.governor("m", &model("requests_per_minute = 5\n"), SLOTS);
        assert!(Arc::ptr_eq(&five, &accounts.governor("m", &model("requests_per_minute = 5\n"), SLOTS)));
        let six = accounts.governor("m", &model("requests_per_minute = 6\n"), SLOTS);
        assert!(!Arc::ptr_eq(&five, &six) && Arc::ptr_eq(five.account(), six.account()));
        let keyed = config::Model { key: Key::Found(config::Secret::new("k")), ..model("") };
        assert!(!Arc::ptr_eq(accounts.governor("m", &keyed, SLOTS).account(), six.account()));
    }

    #[test]
    fn runs_that_follow_their_models_bound_how_many_ask_at_once_also_after_a_reload() {
        let accounts = Accounts::default();
        let table = "provider = \"openai\"\nbase_url = \"http://h/v1\"\n";
        let config = config(&format!("[models.m]\n{table}[models.small]\n{table}max_concurrency = 2\n"));
        let limit = |name: &str, slots: &str| {
            let model = config.describe(name).expect("known");
            accounts.governor(name, &model, slots.parse().expect("slots")).view().limit
        };
        assert_eq!((limit("m", "100"), limit("small", "100")), (Some(20), Some(2)));
        assert_eq!((limit("m", "3-5-50"), limit("small", "3-5-50")), (Some(20), Some(2)));
        assert_eq!(limit("m", "1-2-3"), Some(3), "what is known stays, within the new bounds");
    }
}
