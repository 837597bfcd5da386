//! A ring that cannot be trusted any more: its processes are ended, its requests get their failure, and the generation goes on with
//! memory of its own making. Requests that come meanwhile wait for the new boot. The same where nobody knows what became of the processes: after a
//! panic of the supervision.

use std::{io, sync::Arc, time::Duration};

use hayate_ring::Ring;
use tokio::time::{Instant, sleep, timeout};

use crate::{deaths::DYING, generation::Health, supervisor::Supervisor, worker::Cause};

/// A ring that lasted this long has nothing to do with the one before.
const LASTED: Duration = Duration::from_secs(60);
/// A boot, or a fork, that waits longer than this is worth a 503 rather than a wait.
pub(crate) const LONG: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Does without the present ring, which was overwritten.
    pub(crate) async fn condemn(&mut self, why: &'static str) {
        let delay = self.delay_of_renewal();
        let app = self.shared.spec.name.clone();
        tracing::error!(
            app,
            "the memory that PHP shares with the front cannot be trusted any more: {why}. Some code of this application wrote there \
             (FFI, /proc/self/mem, a bug in an extension). All its workers are ended, what they were serving is lost, and it boots anew \
             in {delay:?}"
        );
        let said = format!("the memory that PHP shares with the front was overwritten: {why}");
        self.boot_anew(Cause::Memory, delay, said).await;
    }

    /// After a panic: what there is was made by a task that has lost its way, so none of it is relied on.
    pub(crate) async fn recover(&mut self) {
        let delay = self.delay_of_renewal();
        let why = "the supervision of its processes met a fault of Hayate's own";
        tracing::error!(
            app = self.shared.spec.name,
            "{why}: all of them are ended, what they were serving is lost, and it boots anew in {delay:?}"
        );
        self.pressed_since = None;
        self.fork_at = Instant::now();
        self.boot_anew(Cause::Fault, delay, why.into()).await;
        // Who waits for the first boot is not to wait for ever.
        if matches!(*self.health.borrow(), Health::Booting) {
            self.boot_failed(why.into(), Vec::new());
        }
        // Whatever it is that happens each time.
        sleep(delay.min(LONG)).await;
    }

    /// How long to wait with the next boot: ever longer while rings do not last.
    fn delay_of_renewal(&mut self) -> Duration {
        if self.ring_since.elapsed() >= LASTED {
            self.memory_backoff.succeeded();
        }
        self.memory_backoff.failed()
    }

    /// Ends everything that maps the present ring, and makes ready for a boot with another one.
    async fn boot_anew(&mut self, cause: Cause, delay: Duration, why: String) {
        let old = self.shared.ring();
        let now = Instant::now();
        // Those who come meanwhile wait for the new workers; unless that would be long.
        if !self.is_ending() {
            self.renew_ring();
            if delay >= LONG {
                self.cannot_serve(why);
            }
        }
        for worker in self.shared.table().workers.values_mut() {
            worker.sentence.get_or_insert(cause);
            if let Some(process) = &worker.process {
                process.kill();
            }
        }
        if let Some(mut host) = self.host.take() {
            host.kill();
            // A zygote that does not die has no workers to fork for, and the old memory only.
            let _ = timeout(DYING, host.died()).await;
            self.shared.table().zygote = None;
        }
        self.settle(&old).await;
        old.end();
        self.said = None;
        self.host_at = now + delay;
    }

    /// Puts a new ring in the place of the present one, or remembers that it is still to be made.
    pub(crate) fn renew_ring(&mut self) {
        self.ring_is_over = true;
        if let Err(error) = self.sound_ring() {
            tracing::error!(app = self.shared.spec.name, "there is no memory for a new ring: {error}");
        }
    }

    /// The ring that the next zygote is to serve.
    pub(crate) fn sound_ring(&mut self) -> io::Result<Arc<Ring>> {
        let ring = self.shared.ring();
        if !self.ring_is_over {
            return Ok(ring);
        }
        // Also when there is none to take its place: nobody is to wait in it.
        ring.hand_over(None);
        let new = ring.create_alike(&self.hub)?;
        ring.hand_over(Some(&new));
        self.shared.set_ring(&new);
        self.ring_since = Instant::now();
        self.ring_is_over = false;
        Ok(new)
    }
}
