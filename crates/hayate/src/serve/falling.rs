//! Boots that are waited for beside everything else: of what is to take the place of a generation that is not fit, and of what was slow at the
//! start.

use std::{collections::HashMap, sync::Arc};

use hayate_pool::Generation;
use tokio::task::{Id, JoinSet};

use crate::fallback::Replacement;

/// How one ended; an error was logged where it came about.
pub(super) type Outcome = Result<Option<Replacement>, String>;

/// One for each generation at most.
#[derive(Default)]
pub(super) struct Falling {
    tasks: JoinSet<Outcome>,
    of: HashMap<Id, Arc<Generation>>,
}

impl Falling {
    /// Whether there is one for this generation.
    pub(super) fn is_under_way(&self, generation: &Arc<Generation>) -> bool {
        self.of.values().any(|other| Arc::ptr_eq(other, generation))
    }

    pub(super) fn spawn(
        &mut self,
        generation: &Arc<Generation>,
        boot: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let id = self.tasks.spawn(boot).id();
        self.of.insert(id, Arc::clone(generation));
    }

    /// The next that ends, and of which generation; `None`: there is none. It may be dropped at any time.
    pub(super) async fn next(&mut self) -> Option<(Option<Arc<Generation>>, Outcome)> {
        let (id, outcome) = match self.tasks.join_next_with_id().await? {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => (error.id(), Err(error.to_string())),
        };
        Some((self.of.remove(&id), outcome))
    }

    /// Gives all of them up, and ends what they have started.
    pub(super) async fn abort(&mut self) {
        self.tasks.shutdown().await;
        self.of.clear();
    }

    /// The same where nothing else is going to take the place of these generations: what waits in those that do not serve is told so.
    pub(super) async fn give_up(&mut self) {
        self.tasks.shutdown().await;
        self.of.drain().for_each(|(_, generation)| generation.not_replaced());
    }
}
