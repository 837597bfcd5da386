/*
 * The worker's side of the shared memory (layout.h): taking requests, reading and writing bodies, telling the front.
 *
 * It promises that this process may be killed between any two instructions without blocking the front or another
 * worker, and that a wait costs no CPU. Whatever others write into the memory, it reads and writes inside of it, and no
 * loop goes on for ever; a worker that finds what cannot be ends. It knows nothing of PHP; it never allocates.
 */
#ifndef HAYATE_RING_H
#define HAYATE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

/* The exchange that this worker holds, as pointers into the shared memory. */
struct hy_exchange {
	struct hy_slot *slot;
	uint32_t index;
	uint32_t bell; /* of the thread that waits for it */
	const char *request_head;
	uint32_t request_head_len;
	char *response_head;
	/* What stands in the slot as well; only this is believed. */
	uint64_t claim;
	uint64_t taken;     /* request_taken */
	uint64_t tail;      /* response_tail */
	uint64_t announced; /* response_tail when the front was last told */
	uint64_t informed;  /* response_informed */
	uint32_t informs;   /* informational heads so far */
};

/*
 * Maps the memory; from event_fds on there is an eventfd for each thread of the front. Returns NULL, or what is wrong
 * with the memory.
 */
const char *hy_ring_map(int memory_fd, int event_fds);
/* Makes this process the worker of that number. */
void hy_ring_join(uint32_t worker);
uint32_t hy_ring_worker(void);
struct hy_worker *hy_ring_record(void);
struct hy_worker *hy_ring_first_record(void); /* of worker 0, which there always is */
uint32_t *hy_ring_left_out(void);             /* hy_header.left_out */
uint32_t hy_ring_max_workers(void);
/* Threads of the front; 0 before the memory is mapped. */
uint32_t hy_ring_bells(void);
uint32_t hy_ring_response_head_size(void);

void hy_ring_state(enum hy_worker_state state);
/* Asked before each look for a request, and once a second while there is none: false ends the wait as if the front had
 * asked this worker to leave. NULL: nothing is asked. */
extern bool (*hy_before_take)(void);
/* The same, but for whoever sleeps. */
extern bool (*hy_is_current)(void);
/* Sleeps until there is a request and takes it: true. False: the front asked this worker to leave. */
bool hy_ring_next(struct hy_exchange *exchange);
/* For a process that is no worker and handles local exchanges only: a record of its own that nobody looks at. */
void hy_ring_pretend(void);
/*
 * An exchange that no front knows of, in memory of this process: its body is empty, the body of its answer goes to
 * hy_local_sink, or nowhere where that is NULL. False when the head does not fit.
 */
extern void (*hy_local_sink)(const char *from, size_t len);
bool hy_exchange_local(struct hy_exchange *exchange, const char *head, size_t len);
bool hy_is_local(const struct hy_exchange *exchange);
/* Whether this worker was asked to leave. */
bool hy_ring_quit(void);
/* For the zygote, when there is no front any more: asks a worker to leave. It finishes what it has begun; where that
 * waits for the front, its client has left. */
void hy_ring_dismiss(uint32_t worker);

/* Ends this process. Not a bug of its own as far as it knows: somebody wrote where only others may. The front sees to
 * the rest. */
_Noreturn void hy_memory_is_broken(void);

/* Reads up to len bytes of the request body, waiting for the first; 0 at its end. */
size_t hy_body_read(struct hy_exchange *exchange, char *to, size_t len);
/* Whether nobody waits for the answer any more, or the request's body broke off (an unwanted body of an answer is no
 * abort: it is thrown away). */
bool hy_aborted(const struct hy_exchange *exchange);
/* Says that the response head (len bytes, in place) is complete; the front sees it with the next announcement. */
void hy_response_head(struct hy_exchange *exchange, uint32_t len);
/*
 * Sends an informational head at once. Never waits: false when it is too late for one, when there were too many, or
 * when nobody waits for the answer.
 */
bool hy_response_inform(struct hy_exchange *exchange, const char *head, uint32_t len);
/* Puts bytes of the response body, waiting for space. False when nobody waits for them any more. */
bool hy_body_write(struct hy_exchange *exchange, const char *from, size_t len);
/* Makes the front look at what was written so far. */
void hy_response_flush(struct hy_exchange *exchange);
/* The answer is whole; the worker may go on running. Rings unless hy_release follows at once. */
void hy_response_complete(struct hy_exchange *exchange, bool ring);
/* Gives the slot back. The answer must be complete. */
void hy_release(struct hy_exchange *exchange);

/* CLOCK_MONOTONIC, ns */
uint64_t hy_now(void);

#endif
