/* See ring.h for what this promises, layout.h for the protocol. */
#include "ring.h"
#include "stray.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The host's tests define this to kill the worker at each step in turn. */
#ifdef HY_TEST_STEPS
void hy_step(int step);
#define HY_STEP(n) hy_step(n)
#else
#define HY_STEP(n) ((void)0)
#endif

#define LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define STORE_SEQ(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* exchange.index of an exchange that is in no shared memory */
#define LOCAL UINT32_MAX

/* What anybody may have written to; and what it said of itself when it was mapped, which nobody can change. */
static struct hy_header *header;
static struct hy_header layout;
static uint8_t *base;
static uint32_t *cells;
static struct hy_worker *me;
static uint32_t my_number;
static int first_event_fd;
static uint32_t mask_words;

uint64_t hy_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

_Noreturn void hy_memory_is_broken(void)
{
	static const char text[] = HY_LOG_OWN HY_LOG_ERROR
	    "the memory shared with the front was overwritten, by this worker or by another one of its "
	    "application (FFI, a bug in an extension); this worker ends\n";
	ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
	(void)written;
	_exit(HY_EXIT_MEMORY);
}

static struct hy_slot *slot_at(uint32_t index)
{
	return (struct hy_slot *)(void *)(base + layout.slots_offset + (size_t)index * layout.slot_stride);
}

static struct hy_worker *worker_at(uint32_t index)
{
	return (struct hy_worker *)(void *)(base + layout.workers_offset + (size_t)index * sizeof(struct hy_worker));
}

/* Whether everything that the description speaks of lies inside of the memory. */
static bool is_sound(void)
{
	const uint64_t size = layout.size, stride = layout.slot_stride;
	const uint64_t ends[] = {
	    (uint64_t)layout.request_head_offset + layout.request_head_size,
	    (uint64_t)layout.response_head_offset + layout.response_head_size,
	    (uint64_t)layout.request_body_offset + layout.request_body_size,
	    (uint64_t)layout.response_body_offset + layout.response_body_size,
	};
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		if (ends[i] > stride) {
			return false;
		}
	}
	if ((layout.queue_offset | layout.workers_offset | layout.slots_offset | stride) % HY_LINE != 0) {
		return false;
	}
	return layout.bells_used > 0 && layout.bells_used <= HY_MAX_BELLS && layout.slots > 0 &&
	       layout.slots <= HY_MAX_SLOTS && layout.workers > 0 && layout.workers <= HY_MAX_WORKERS &&
	       layout.queue_cells > 0 && layout.queue_cells <= 8 * HY_MAX_SLOTS &&
	       (layout.queue_cells & (layout.queue_cells - 1)) == 0 && layout.request_body_size > 0 &&
	       (layout.request_body_size & (layout.request_body_size - 1)) == 0 && layout.response_body_size > 0 &&
	       (layout.response_body_size & (layout.response_body_size - 1)) == 0 && layout.queue_offset <= size &&
	       layout.queue_cells * sizeof(uint32_t) <= size - layout.queue_offset && layout.workers_offset <= size &&
	       layout.workers * sizeof(struct hy_worker) <= size - layout.workers_offset && layout.slots_offset <= size &&
	       layout.slots * stride <= size - layout.slots_offset;
}

const char *hy_ring_map(int memory_fd, int event_fds)
{
	struct stat st;
	if (fstat(memory_fd, &st) != 0 || st.st_size < (off_t)sizeof(struct hy_header)) {
		return "descriptor 4 is not Hayate's shared memory; the host is started by hayate, not by hand";
	}
	void *at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
	if (at == MAP_FAILED) {
		return "the shared memory cannot be mapped";
	}
	header = at;
	base = at;
	memcpy(&layout, header, offsetof(struct hy_header, queue_head));
	if (layout.magic != HY_MAGIC || layout.version != HY_LAYOUT_VERSION ||
	    layout.header_size != sizeof(struct hy_header) || layout.size != (uint64_t)st.st_size) {
		return "the shared memory has another layout: hayate and its PHP host are of different versions, install both "
		       "anew";
	}
	if (!is_sound()) {
		return "the shared memory was overwritten before this process mapped it";
	}
	cells = (uint32_t *)(void *)(base + layout.queue_offset);
	first_event_fd = event_fds;
	mask_words = (layout.workers + 63) / 64;
	return NULL;
}

void hy_ring_join(uint32_t worker)
{
	my_number = worker;
	me = worker_at(worker);
}

void hy_ring_pretend(void)
{
	static struct hy_worker nobody;
	me = &nobody;
}

uint32_t hy_ring_worker(void)
{
	return my_number;
}

struct hy_worker *hy_ring_record(void)
{
	return me;
}

struct hy_worker *hy_ring_first_record(void)
{
	return base == NULL ? me : worker_at(0);
}

uint32_t *hy_ring_left_out(void)
{
	return &header->left_out;
}

uint32_t hy_ring_max_workers(void)
{
	return layout.workers;
}

uint32_t hy_ring_bells(void)
{
	return layout.bells_used;
}

uint32_t hy_ring_response_head_size(void)
{
	return layout.response_head_size;
}

void hy_ring_state(enum hy_worker_state state)
{
	if (is_stray()) {
		stray_end();
	}
	STORE(&me->state, (uint32_t)state);
}

bool hy_ring_quit(void)
{
	return me != NULL && LOAD_ACQUIRE(&me->quit) != 0;
}

/* What is waited for of a front that is gone does not come. */
static bool is_orphaned(void)
{
	return __atomic_load_n(&me->quit, __ATOMIC_SEQ_CST) == HY_QUIT_ORPHANED;
}

static void futex_wait(uint32_t *word, const struct timespec *most)
{
	/* Shared between processes, so not FUTEX_PRIVATE. A signal or a changed word returns at once; callers loop. */
	syscall(SYS_futex, word, FUTEX_WAIT, 0, most, NULL, 0);
}

static void wake(uint32_t worker)
{
	if (worker >= layout.workers) {
		return;
	}
	struct hy_worker *w = worker_at(worker);
	STORE_SEQ(&w->wake, 1u);
	syscall(SYS_futex, &w->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void hy_ring_dismiss(uint32_t worker)
{
	if (worker < layout.workers) {
		__atomic_store_n(&worker_at(worker)->quit, HY_QUIT_ORPHANED, __ATOMIC_SEQ_CST);
		wake(worker);
	}
}

static bool queue_empty(void)
{
	return LOAD_ACQUIRE(&header->queue_head) == LOAD_ACQUIRE(&header->queue_tail);
}

/*
 * Takes the oldest request, if there is one. Head, tail and cells say where to look, no more: the claim decides. If
 * they are nonsense this gives up, and the front finds out.
 */
static bool take(struct hy_exchange *exchange)
{
	/* The head is never more than a round behind the tail, and each step moves it on. */
	for (uint32_t steps = 0; steps <= 2 * layout.queue_cells; steps++) {
		uint64_t head = LOAD_ACQUIRE(&header->queue_head);
		uint64_t tail = LOAD_ACQUIRE(&header->queue_tail);
		if (head == tail) {
			return false;
		}
		if (tail - head > layout.queue_cells) {
			continue; /* others moved the head between the two looks */
		}
		uint32_t index = LOAD(&cells[head & (layout.queue_cells - 1)]);
		bool mine = false;
		if (index < layout.slots) {
			struct hy_slot *slot = slot_at(index);
			uint64_t queued = HY_QUEUED | head << HY_CLAIM_TICKET_SHIFT;
			uint64_t claimed =
			    HY_CLAIMED | (uint64_t)my_number << HY_CLAIM_WORKER_SHIFT | head << HY_CLAIM_TICKET_SHIFT;
			HY_STEP(1);
			mine =
			    __atomic_compare_exchange_n(&slot->claim, &queued, claimed, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
			HY_STEP(2);
			if (mine) {
				exchange->slot = slot;
				exchange->index = index;
				exchange->claim = claimed;
			}
		}
		/* Move the head on, whoever claimed that slot; if it has moved already, this changes nothing. */
		uint64_t expected = head;
		__atomic_compare_exchange_n(&header->queue_head, &expected, head + 1, false, __ATOMIC_ACQ_REL,
		                            __ATOMIC_RELAXED);
		HY_STEP(3);
		if (mine) {
			return true;
		}
	}
	return false;
}

/* Wakes one sleeping worker, if any: a wake-up that came to this worker was meant for another request. */
static void pass_on(void)
{
	for (uint32_t i = 0; i < mask_words; i++) {
		/* Each of them once, whatever somebody writes there meanwhile. */
		for (uint64_t seen = LOAD(&header->sleepers[i]); seen != 0; seen &= seen - 1) {
			uint64_t bit = seen & -seen;
			if (__atomic_fetch_and(&header->sleepers[i], ~bit, __ATOMIC_SEQ_CST) & bit) {
				wake(i * 64 + (uint32_t)__builtin_ctzll(bit));
				return;
			}
		}
	}
}

static void begin(struct hy_exchange *exchange)
{
	struct hy_slot *slot = exchange->slot;
	uint8_t *at = (uint8_t *)slot;
	exchange->request_head = (const char *)at + layout.request_head_offset;
	exchange->request_head_len = LOAD(&slot->request_head_len);
	exchange->response_head = (char *)at + layout.response_head_offset;
	exchange->announced = exchange->taken = exchange->tail = exchange->informed = 0;
	exchange->informs = 0;
	exchange->bell = LOAD(&slot->bell);
	if (exchange->request_head_len > layout.request_head_size || exchange->bell >= layout.bells_used) {
		hy_memory_is_broken();
	}
	STORE(&slot->claimed_at, hy_now());
	STORE(&me->state, (uint32_t)HY_WORKER_SERVING);
}

bool (*hy_before_take)(void);
bool (*hy_is_current)(void);

/* Until somebody wakes it, or there is reason to leave. */
static void sleep_idle(void)
{
	const struct timespec second = {.tv_sec = 1};
	while (__atomic_load_n(&me->wake, __ATOMIC_SEQ_CST) == 0 && (hy_before_take == NULL || hy_before_take())) {
		futex_wait(&me->wake, hy_before_take == NULL ? NULL : &second);
	}
}

bool hy_ring_next(struct hy_exchange *exchange)
{
	if (is_stray()) {
		stray_end();
	}
	uint64_t *mask = &header->sleepers[my_number / 64];
	const uint64_t bit = 1ull << (my_number % 64);
	for (;;) {
		if (hy_ring_quit()) {
			return false;
		}
		if ((hy_before_take != NULL && !hy_before_take()) || (hy_is_current != NULL && !hy_is_current())) {
			/* Perhaps it was woken for a request: that one needs another worker. */
			if (!queue_empty()) {
				pass_on();
			}
			return false;
		}
		if (take(exchange)) {
			begin(exchange);
			return true;
		}
		STORE(&me->state, (uint32_t)HY_WORKER_IDLE);
		STORE_SEQ(&me->wake, 0u);
		HY_STEP(4);
		__atomic_fetch_or(mask, bit, __ATOMIC_SEQ_CST);
		FENCE();
		HY_STEP(5);
		/* Announced; look again before sleeping. */
		bool taken = take(exchange);
		if (!taken && !hy_ring_quit()) {
			sleep_idle();
			HY_STEP(6);
		}
		bool still_announced = __atomic_fetch_and(mask, ~bit, __ATOMIC_SEQ_CST) & bit;
		HY_STEP(7);
		if (taken) {
			/* Somebody chose this worker for a request that it did not take: that request needs another one. */
			if (!still_announced && !queue_empty()) {
				pass_on();
			}
			begin(exchange);
			return true;
		}
	}
}

static void ring_doorbell(const struct hy_exchange *exchange)
{
	const uint32_t slot = exchange->index;
	if (slot == LOCAL) {
		return;
	}
	struct hy_bell *bell = &header->bells[exchange->bell];
	__atomic_fetch_or(&bell->doorbells[slot / 64], 1ull << (slot % 64), __ATOMIC_SEQ_CST);
	HY_STEP(8);
	if (__atomic_load_n(&bell->sleeping, __ATOMIC_SEQ_CST) != 0 &&
	    __atomic_exchange_n(&bell->sleeping, 0u, __ATOMIC_SEQ_CST) != 0) {
		HY_STEP(9);
		uint64_t one = 1;
		/* Never read, so it could only fail after 2^64 - 2 writes. */
		ssize_t written = write(first_event_fd + (int)exchange->bell, &one, sizeof one);
		(void)written;
	}
}

void (*hy_local_sink)(const char *from, size_t len);

bool hy_exchange_local(struct hy_exchange *exchange, const char *head, size_t len)
{
	static void *memory;
	if (memory == NULL) {
		memory = mmap(NULL, layout.slot_stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED) {
			memory = NULL;
		}
	}
	if (memory == NULL || len > layout.request_head_size) {
		return false;
	}
	struct hy_slot *slot = memory;
	memset(slot, 0, sizeof *slot);
	slot->request_state = HY_REQUEST_COMPLETE;
	slot->aborted = 2; /* the body is not wanted */
	slot->request_head_len = (uint32_t)len;
	exchange->slot = slot;
	exchange->index = LOCAL;
	exchange->claim = 0;
	exchange->request_head = (const char *)memory + layout.request_head_offset;
	exchange->request_head_len = (uint32_t)len;
	exchange->response_head = (char *)memory + layout.response_head_offset;
	exchange->announced = exchange->taken = exchange->tail = exchange->informed = 0;
	exchange->informs = 0;
	memcpy((char *)memory + layout.request_head_offset, head, len);
	return true;
}

bool hy_is_local(const struct hy_exchange *exchange)
{
	return exchange->slot != NULL && exchange->index == LOCAL;
}

bool hy_aborted(const struct hy_exchange *exchange)
{
	const struct hy_slot *slot = exchange->slot;
	/* A front that finds a body broken gives the answer up as well, but a moment later. */
	return LOAD(&slot->aborted) == 1 || LOAD(&slot->request_state) == HY_REQUEST_BROKEN;
}

/* One step of a wait for the front: announces, and sleeps unless `ready` says there is no need. */
static void wait_for_front(const struct hy_exchange *exchange, bool (*ready)(const struct hy_exchange *))
{
	struct hy_slot *slot = exchange->slot;
	STORE_SEQ(&me->wake, 0u);
	STORE_SEQ(&slot->worker_waits, 1u);
	FENCE();
	HY_STEP(10);
	if (!ready(exchange) && !is_orphaned()) {
		uint64_t since = hy_now();
		STORE(&slot->blocked_since, since);
		while (__atomic_load_n(&me->wake, __ATOMIC_SEQ_CST) == 0) {
			futex_wait(&me->wake, NULL);
		}
		STORE(&slot->blocked_ns, LOAD(&slot->blocked_ns) + (hy_now() - since));
		STORE(&slot->blocked_since, (uint64_t)0);
	}
	STORE_SEQ(&slot->worker_waits, 0u);
	if (is_orphaned()) {
		STORE(&slot->aborted, 1u); /* as the front does for a client that has left */
	}
}

static bool input_ready(const struct hy_exchange *exchange)
{
	struct hy_slot *slot = exchange->slot;
	return LOAD_ACQUIRE(&slot->request_tail) != exchange->taken ||
	       LOAD_ACQUIRE(&slot->request_state) != HY_REQUEST_OPEN || LOAD(&slot->aborted) != 0;
}

size_t hy_body_read(struct hy_exchange *exchange, char *to, size_t len)
{
	struct hy_slot *slot = exchange->slot;
	const uint8_t *ring = (const uint8_t *)slot + layout.request_body_offset;
	const uint64_t size = layout.request_body_size;
	const uint64_t taken = exchange->taken;
	if (len == 0 || is_stray()) {
		return 0;
	}
	for (;;) {
		/* The state before the tail: once it says COMPLETE the tail moves no more. */
		uint32_t state = LOAD_ACQUIRE(&slot->request_state);
		uint64_t there = LOAD_ACQUIRE(&slot->request_tail) - taken;
		if (there > size) {
			hy_memory_is_broken();
		}
		if (there != 0) {
			size_t n = there < len ? (size_t)there : len;
			size_t at = (size_t)(taken & (size - 1));
			size_t first = n < size - at ? n : (size_t)(size - at);
			memcpy(to, ring + at, first);
			memcpy(to + first, ring, n - first);
			exchange->taken = taken + n;
			STORE_SEQ(&slot->request_taken, exchange->taken);
			FENCE();
			if (LOAD(&slot->front_wants_space) != 0 &&
			    __atomic_exchange_n(&slot->front_wants_space, 0u, __ATOMIC_SEQ_CST) != 0) {
				ring_doorbell(exchange);
			}
			return n;
		}
		if (state != HY_REQUEST_OPEN || LOAD(&slot->aborted) != 0) {
			return 0;
		}
		/* A script that answers while it reads (a proxy, an echo) must not hold back what it wrote. */
		hy_response_flush(exchange);
		wait_for_front(exchange, input_ready);
	}
}

void hy_response_head(struct hy_exchange *exchange, uint32_t len)
{
	if (is_stray()) {
		return;
	}
	STORE(&exchange->slot->response_head_len, len);
}

bool hy_response_inform(struct hy_exchange *exchange, const char *head, uint32_t len)
{
	struct hy_slot *slot = exchange->slot;
	const uint64_t size = layout.response_body_size;
	const uint64_t most = size < HY_INFORM_BYTES ? size : HY_INFORM_BYTES;
	if (is_stray() || hy_is_local(exchange)) {
		return true;
	}
	if (LOAD(&slot->response_head_len) != 0 || exchange->tail != exchange->informed || LOAD(&slot->aborted) != 0 ||
	    exchange->informs >= HY_INFORM_MOST || most - exchange->tail < sizeof len ||
	    most - exchange->tail - sizeof len < len) {
		return false;
	}
	/* The first bytes of the ring, so there is room for them whatever the front has taken. */
	uint8_t *to = (uint8_t *)slot + layout.response_body_offset + exchange->tail;
	memcpy(to, &len, sizeof len);
	memcpy(to + sizeof len, head, len);
	exchange->tail += sizeof len + len;
	exchange->announced = exchange->informed = exchange->tail;
	exchange->informs++;
	STORE_RELEASE(&slot->response_tail, exchange->tail);
	STORE_RELEASE(&slot->response_informed, exchange->informed);
	ring_doorbell(exchange);
	return true;
}

static bool output_ready(const struct hy_exchange *exchange)
{
	return exchange->tail - LOAD_ACQUIRE(&exchange->slot->response_taken) != layout.response_body_size ||
	       LOAD(&exchange->slot->aborted) != 0;
}

bool hy_body_write(struct hy_exchange *exchange, const char *from, size_t len)
{
	struct hy_slot *slot = exchange->slot;
	uint8_t *ring = (uint8_t *)slot + layout.response_body_offset;
	const uint64_t size = layout.response_body_size;
	if (is_stray()) {
		return true;
	}
	while (len > 0) {
		uint32_t aborted = LOAD(&slot->aborted);
		if (aborted != 0) {
			if (hy_is_local(exchange) && hy_local_sink != NULL) {
				hy_local_sink(from, len);
			}
			return aborted == 2;
		}
		if (hy_aborted(exchange)) {
			return false;
		}
		uint64_t tail = exchange->tail;
		uint64_t inside = tail - LOAD_ACQUIRE(&slot->response_taken);
		if (inside > size) {
			hy_memory_is_broken();
		}
		uint64_t space = size - inside;
		if (space == 0) {
			hy_response_flush(exchange);
			wait_for_front(exchange, output_ready);
			continue;
		}
		size_t n = len < space ? len : (size_t)space;
		size_t at = (size_t)(tail & (size - 1));
		size_t first = n < size - at ? n : (size_t)(size - at);
		memcpy(ring + at, from, first);
		memcpy(ring, from + first, n - first);
		exchange->tail = tail + n;
		from += n;
		len -= n;
		STORE_RELEASE(&slot->response_tail, exchange->tail);
		/* Half a ring that the front has not heard of: let it work while PHP goes on. */
		if (exchange->tail - exchange->announced >= size / 2) {
			hy_response_flush(exchange);
		}
	}
	return true;
}

void hy_response_flush(struct hy_exchange *exchange)
{
	struct hy_slot *slot = exchange->slot;
	uint32_t state = LOAD(&slot->response_state);
	if (is_stray() || LOAD(&slot->response_head_len) == 0 || state == HY_RESPONSE_COMPLETE) {
		return; /* nothing may be shown yet, or everything has been */
	}
	if (state == HY_RESPONSE_HEAD && exchange->tail == exchange->announced) {
		return;
	}
	exchange->announced = exchange->tail;
	STORE_RELEASE(&slot->response_state, (uint32_t)HY_RESPONSE_HEAD);
	HY_STEP(11);
	ring_doorbell(exchange);
}

void hy_response_complete(struct hy_exchange *exchange, bool ring)
{
	if (is_stray()) {
		return;
	}
	STORE_RELEASE(&exchange->slot->response_state, (uint32_t)HY_RESPONSE_COMPLETE);
	HY_STEP(12);
	if (ring) {
		ring_doorbell(exchange);
	}
}

void hy_release(struct hy_exchange *exchange)
{
	struct hy_slot *slot = exchange->slot;
	if (is_stray()) {
		stray_end();
	}
	if (hy_is_local(exchange)) {
		exchange->slot = NULL;
		return;
	}
	STORE(&me->requests, LOAD(&me->requests) + 1);
	/* Nobody changes the claim of a worker that lives. Otherwise the slot is another's by now, perhaps. */
	if (LOAD(&slot->claim) != exchange->claim) {
		hy_memory_is_broken();
	}
	STORE_RELEASE(&slot->claim, (exchange->claim & ~HY_CLAIM_STATE_MASK) | HY_DONE);
	HY_STEP(13);
	ring_doorbell(exchange);
	exchange->slot = NULL;
}
