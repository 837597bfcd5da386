/*
 * The memory that the front and its PHP workers share: one source for both languages (the Rust side reads this file
 * through bindgen, see crates/ring/build.rs).
 *
 * One memfd holds, in this order: a header, the cells of the request queue, one record per worker, and the slots. A
 * slot carries one exchange: request head, request body ring, response head, response body ring. The front is one
 * process of several threads: "the front" below is one of them that holds the lock on the front's own record, or the
 * one that the slot belongs to. Workers are many, and any of them may be killed between any two instructions. The rules
 * that keep the memory sound through that:
 *
 *  1. Who owns a slot is said by one word, `claim`, and changes by one atomic operation:
 *
 *       FREE ──front──► QUEUED(ticket) ──worker, CAS──► CLAIMED(worker, ticket) ──worker──► DONE(worker, ticket)
 *         ▲                  │ front, CAS                    │ front, once the worker is known dead    │
 *         └──────────────────┴───────────────────────────────┴─────────────────────────────────────────┘
 *
 *     so there is no moment at which a killed worker has taken a request without its name standing in it.
 *  2. The queue is a ring of slot numbers. The front alone writes cells and the tail, and has its own record of them.
 *     A worker claims the slot that the cell at `queue_head` names and then moves the head on; if it dies in between,
 *     whoever comes next finds the slot no longer QUEUED with that ticket and moves the head on in its place. Tickets
 *     are 48 bits and never reused, which makes a stale cell harmless. The head is never more than one round of the
 *     cells behind the tail. When the tail comes round to a request that still waits, the front gives those that wait
 *     new tickets (by CAS on their claims) before it uses their cells again.
 *  3. A worker tells the front of news in a slot by setting the slot's bit in the doorbells of the thread that the slot
 *     belongs to (`hy_slot.bell`). The bit says "look", never what happened, so ringing twice, or dying before ringing,
 *     loses nothing: the front looks at every slot of a dead worker.
 *  4. Sleep and wake follow one pattern on both sides: announce the sleep (sequentially consistent), look again, sleep;
 *     the other side publishes, fences, looks for an announced sleeper.
 *  5. Any worker may write anything anywhere, by a bug or on purpose. Neither side computes, indexes or loops with a
 *     word that the other has written before it has checked a copy of it, and each has its own positions in memory that
 *     is not shared. What contradicts the front's record ends the worker that it names, or all of them and this memory.
 *
 * Every word that one side spins on or waits for has a cache line pair (128 bytes) of its own.
 * Plain integers here; both sides touch the shared ones only through atomic operations.
 */
#ifndef HAYATE_LAYOUT_H
#define HAYATE_LAYOUT_H

#include <stdint.h>

#define HY_MAGIC 0x0001455441594148ull /* "HAYATE\1\0" read as a little-endian word */
/* Raised with every change to this file that an old binary would misread; checked when the host starts. */
#define HY_LAYOUT_VERSION 9u

#define HY_LINE 128
#define HY_MAX_WORKERS 1024u
#define HY_MAX_SLOTS 1024u
#define HY_MASK_WORDS 16u /* 64 bits each: HY_MAX_WORKERS and HY_MAX_SLOTS bits */
#define HY_MAX_BELLS 64u  /* threads of the front */

/* claim = state (4 bits) | worker << 4 (12 bits) | ticket << 16 (48 bits) */
#define HY_CLAIM_STATE_MASK 0xfull
#define HY_CLAIM_WORKER_SHIFT 4
#define HY_CLAIM_WORKER_MASK 0xfffull
#define HY_CLAIM_TICKET_SHIFT 16
enum hy_claim_state {
	HY_FREE = 0,
	HY_QUEUED = 1,
	HY_CLAIMED = 2,
	HY_DONE = 3,
};

/* hy_slot.response_state, written by the worker */
enum hy_response_state {
	HY_RESPONSE_NONE = 0,     /* nothing to read yet */
	HY_RESPONSE_HEAD = 1,     /* the head is complete; body bytes follow in the ring */
	HY_RESPONSE_COMPLETE = 2, /* head and all of the body are in place; the worker may still be running PHP */
};

/* hy_slot.request_state, written by the front */
enum hy_request_state {
	HY_REQUEST_OPEN = 0,     /* more body may come */
	HY_REQUEST_COMPLETE = 1, /* all of the body is in the ring */
	HY_REQUEST_BROKEN = 2,   /* the client went away or broke the framing: treat as end of file, and as an abort */
};

/* hy_worker.state, written by the worker; the names are those of docs/architecture.md */
enum hy_worker_state {
	HY_WORKER_STARTING = 0,
	HY_WORKER_IDLE = 1,
	HY_WORKER_SERVING = 2,
	HY_WORKER_REWINDING = 3,
	HY_WORKER_RETIRING = 4,
};

/* Why a worker left by itself; hy_worker.retired, written by the worker before it exits */
enum hy_retired {
	HY_RETIRED_NOT = 0,
	HY_RETIRED_ASKED = 1,        /* hy_worker.quit was set: drain, reload or shrink */
	HY_RETIRED_MAX_REQUESTS = 2, /* served max_requests */
	HY_RETIRED_MAX_MEMORY = 3,   /* above max_memory after a request */
	HY_RETIRED_SCRIPT_ENDED = 4, /* the worker script returned */
	HY_RETIRED_FATAL = 5,        /* a fatal error unwound the worker script */
	/* The request left something that a rewind cannot take back; the next request gets a fresh process. */
	HY_RETIRED_REWIND_THREADS = 6,     /* a thread that the request started still runs */
	HY_RETIRED_REWIND_MAPPINGS = 7,    /* memory that cannot be put back: unmapped, remapped or protected otherwise */
	HY_RETIRED_REWIND_DESCRIPTORS = 8, /* a descriptor of the boot was closed or replaced and cannot be put back */
	HY_RETIRED_REWIND_CONNECTION = 9,  /* the request used a connection that the boot had opened */
	HY_RETIRED_REWIND_CHILD = 10,      /* a child process was left behind */
	HY_RETIRED_REWIND_OPCACHE = 11,    /* the request called opcache_reset() */
	HY_RETIRED_REWIND_CLEANUP = 12,    /* a fatal error during the clean-up, after which the rest of it is in doubt */
	HY_RETIRED_REWIND_MEMORY = 13,     /* tracking failed, or a comparison with the snapshot found a difference */
	HY_RETIRED_REWIND_LIBRARY = 14,    /* a shared library was loaded or unloaded during the request */
	HY_RETIRED_REWIND_PROCESS = 15,    /* priority, limits, session, user or group of the process were changed */
	/* Between requests: */
	HY_RETIRED_CONNECTION_LOST = 16, /* a connection that is kept was closed by its server, or not put back in time */
	/* The request was answered; what somebody did to a file is no fault of it: */
	HY_RETIRED_FILE_REPLACED = 17, /* a file of the boot is another one by now, and cannot be opened as the boot did */
	/* What was loaded before the requests was in the way of this one: */
	HY_RETIRED_CLASS_DECLARED = 18, /* it declared a class of the same name */
	/* Between requests, and planned: */
	HY_RETIRED_CONNECTION_LIFETIME = 19, /* a connection that is kept has reached its greatest age */
	HY_RETIRED_END                       /* no reason: one behind the last */
};

/* How a rewinding worker learns which pages a request wrote; hy_worker.tracking */
enum hy_tracking {
	HY_TRACKING_OFF = 0,        /* no rewind: classic mode, or state is kept */
	HY_TRACKING_UFFD = 1,       /* userfaultfd write protection and PAGEMAP_SCAN: Linux 6.7 and later */
	HY_TRACKING_SOFT_DIRTY = 2, /* soft-dirty bits of /proc/self/pagemap */
	HY_TRACKING_FORK = 3,       /* none: each request runs in a fork of the booted process */
};

#define HY_QUIT_ORPHANED 2u /* of hy_worker.quit: there is no front any more */

struct hy_worker {
	/* futex word (shared, not FUTEX_PRIVATE): 0 = may sleep, 1 = woken */
	uint32_t wake;
	/* not 0: leave as soon as the current request is over. Set by the front, or by the zygote: HY_QUIT_ORPHANED */
	uint32_t quit;
	uint32_t state;
	uint32_t retired;
	uint64_t requests;   /* served since this worker's fork */
	uint64_t fits_below; /* its own: up to so many resident bytes it is known to be within max_memory */
	/* Of rewinding workers, sums since this worker's fork; times in ns. */
	uint64_t rewinds;
	uint64_t clean_ns;   /* what the request acquired is released, in PHP's own order */
	uint64_t scan_ns;    /* finding the pages it wrote */
	uint64_t copy_ns;    /* putting them back, and the mappings, descriptors and stack */
	uint64_t cold_pages; /* pages put back that are not in the hot set */
	uint32_t hot_pages;  /* pages in the hot set now: put back after each request without looking */
	uint32_t tracking;   /* enum hy_tracking */
	uint64_t resets;     /* connections put back at their server's end */
	uint64_t reset_ns;   /* what that took, the wait for the server included */
	uint32_t warm;       /* connections that are kept over rewinds now */
	/* Workers of this number in a row whose start failed (worker_start.c): the next one reads it. */
	uint32_t failed_starts;
	uint64_t start_again_at; /* CLOCK_MONOTONIC, ns: until then workers of this number go without their start */
	/* Of the first one, for all: what the log has said of connections already, as hashes (warm.c). */
	uint64_t told_declined;
	uint32_t told_left;
	uint8_t pad[HY_LINE - 124];
};

struct hy_slot {
	uint64_t claim;
	uint8_t pad0[HY_LINE - 8];

	/* Written by the front. Positions count bytes since the exchange began and never wrap; index = position & (size -
	 * 1). */
	uint64_t submitted_at;     /* CLOCK_MONOTONIC, ns */
	uint64_t request_tail;     /* request body: bytes put in */
	uint64_t response_taken;   /* response body: bytes taken out */
	uint32_t request_head_len; /* bytes of records in the request head area */
	uint32_t request_state;
	uint32_t aborted;           /* 1: nobody waits for the answer any more; 2: only its body is not wanted */
	uint32_t front_wants_space; /* 1: ring when request body space comes free */
	uint32_t bell;              /* the thread that it belongs to: which of hy_header.bells to ring */
	uint8_t pad1[HY_LINE - 44];

	/* Written by the worker that holds the claim. */
	uint64_t claimed_at;    /* CLOCK_MONOTONIC, ns */
	uint64_t blocked_ns;    /* total time spent waiting for the client since then */
	uint64_t blocked_since; /* CLOCK_MONOTONIC ns when the present wait began, 0: not waiting */
	uint64_t request_taken; /* request body: bytes taken out */
	uint64_t response_tail; /* response body: bytes put in */
	/* Of the response body ring's bytes, so many come before the body: informational heads (103), each a uint32_t
	 * length and then a head as in the response head area. It does not move any more once the head is there. */
	uint64_t response_informed;
	uint32_t response_head_len;
	uint32_t response_state;
	uint32_t worker_waits; /* 1: wake the worker when body bytes or space come, or on abort */
	uint8_t pad2[HY_LINE - 60];
	/* then: request head, response head, request body ring, response body ring, at the offsets in hy_header */
};

/* Where one thread of the front sleeps, and the slots of its own that have news for it. */
struct hy_bell {
	uint32_t sleeping; /* 1: write the thread's eventfd after ringing; taken by exchange, so one write per sleep */
	uint8_t pad[HY_LINE - 4];
	uint64_t doorbells[HY_MASK_WORDS]; /* bit s: slot s has news */
};

struct hy_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_size;
	uint64_t size; /* of the whole memory, bytes */
	uint32_t slots;
	uint32_t workers;
	uint32_t queue_cells; /* a power of two, at least 2 * slots */
	uint32_t slot_stride;
	uint64_t queue_offset;
	uint64_t workers_offset;
	uint64_t slots_offset;
	/* offsets within a slot, and sizes; the two rings' sizes are powers of two */
	uint32_t request_head_offset;
	uint32_t request_head_size;
	uint32_t response_head_offset;
	uint32_t response_head_size;
	uint32_t request_body_offset;
	uint32_t request_body_size;
	uint32_t response_body_offset;
	uint32_t response_body_size;
	uint32_t bells_used; /* threads of the front: that many of `bells`, and of eventfds */
	uint8_t pad0[HY_LINE - 100];

	/* Where workers look. The front has its own record of the queue and believes none of this. */
	uint64_t queue_head; /* next ticket to claim; anybody may move it past one that is not queued */
	uint8_t pad1[HY_LINE - 8];
	uint64_t queue_tail; /* next ticket to publish; the front's */
	/* The workers' own, seldom written. Bit i: what opens connections in each of them (worker_start.c), the i-th of it,
	 * opens one that cannot be kept, and is left out. */
	uint32_t left_out;
	uint8_t pad2[HY_LINE - 12];
	uint64_t sleepers[HY_MASK_WORDS]; /* bit w: worker w is about to sleep or sleeps for want of requests */
	struct hy_bell bells[HY_MAX_BELLS];
};

/*
 * Request head: a sequence of records, each a struct hy_record, then name_len bytes of name and a NUL, then value_len
 * bytes of value and a NUL (so that C may use both as strings; both may hold NULs only if the front lets them, and it
 * does not). Records are unaligned. Order is free, except that headers keep the order of the wire.
 */
struct hy_record {
	uint16_t field;    /* enum hy_field */
	uint16_t name_len; /* 0 unless field is HY_FIELD_HEADER or HY_FIELD_VARIABLE */
	uint32_t value_len;
};

/* Fields of a request head. One that is not there is empty. */
enum hy_field {
	HY_FIELD_HEADER = 0, /* name in lower case, value as received */
	HY_FIELD_METHOD = 1,
	HY_FIELD_TARGET = 2,   /* request target in origin form, raw: path?query */
	HY_FIELD_QUERY = 3,    /* raw, without '?' */
	HY_FIELD_PROTOCOL = 4, /* "HTTP/1.1" */
	HY_FIELD_DOCUMENT_ROOT = 5,
	HY_FIELD_SCRIPT_FILENAME = 6, /* absolute path of the file to run */
	HY_FIELD_SCRIPT_NAME = 7,     /* its path below the document root, decoded */
	HY_FIELD_PATH_INFO = 8,       /* decoded */
	HY_FIELD_DOCUMENT_URI = 9,    /* decoded and normalised path, SCRIPT_NAME + PATH_INFO */
	HY_FIELD_REMOTE_ADDR = 10,
	HY_FIELD_REMOTE_PORT = 11,
	HY_FIELD_SERVER_ADDR = 12,
	HY_FIELD_SERVER_PORT = 13,
	HY_FIELD_SERVER_NAME = 14,
	HY_FIELD_SCHEME = 15,         /* "http" or "https" */
	HY_FIELD_CONTENT_TYPE = 16,   /* as received */
	HY_FIELD_CONTENT_LENGTH = 17, /* decimal; "" when absent or when the body is chunked */
	HY_FIELD_REQUEST_ID = 18,     /* for the log */
	HY_FIELD_VARIABLE = 19,       /* a variable of $_SERVER by its own name, such as SSL_PROTOCOL */
	HY_FIELD_COUNT = 20,
};

/*
 * Response head: struct hy_response_head, reason_len bytes of reason phrase, then `headers` times
 * { uint16_t name_len; uint32_t value_len; name; value } without padding.
 */
struct hy_response_head {
	uint16_t status;
	uint16_t reason_len; /* 0: the standard phrase */
	uint16_t headers;
};

/* Informational heads of one answer: how many at most, and of how many bytes together. */
#define HY_INFORM_MOST 16u
#define HY_INFORM_BYTES 16384u

/*
 * Control channel between the pool and the zygote: a SOCK_SEQPACKET socket pair, one struct hy_message per packet.
 * The zygote's descriptors at exec: 3 = this channel, 4 = the memory, 5 = a file of the generation's own that is empty
 * at first: names of classes, one per line, that a boot without warm-up requests loads because those of a boot before
 * it used them, 6 = further arguments (options.c), closed once they are read, from 7 on an eventfd for each thread of
 * the front, as many as hy_header.bells_used.
 */
#define HY_FD_CONTROL 3
#define HY_FD_MEMORY 4
#define HY_FD_CLASSES 5
#define HY_FD_OPTIONS 6
#define HY_FD_EVENTS 7

enum hy_message_type {
	/* to the zygote */
	HY_MSG_FORK = 1, /* worker */
	HY_MSG_PING = 2, /* value = a number that comes back */
	HY_MSG_QUIT = 3, /* kill what is left, exit */
	/* worker, value = for how long it has run its request, ms, pid = the lower 32 bits of that one's ticket: log what
	 * it is doing */
	HY_MSG_TRACE = 4,
	/* worker, pid: its request has run for too long: have PHP end it as max_execution_time would; the pool kills it
	   soon */
	HY_MSG_UNWIND = 5,
	/* from the zygote */
	HY_MSG_READY = 16,        /* booted; text = PHP version */
	HY_MSG_BOOT_FAILED = 17,  /* text says why; the zygote exits next */
	HY_MSG_BOOT_AGAIN = 18,   /* worker or UINT32_MAX, value = enum hy_again, text says why; the sender exits next */
	HY_MSG_FORKED = 19,       /* worker, pid */
	HY_MSG_FORK_FAILED = 20,  /* worker, value = errno */
	HY_MSG_EXITED = 21,       /* worker, pid, value = wait status */
	HY_MSG_PONG = 23,         /* value as in the ping */
	HY_MSG_REMARK = 25,       /* text is for people: something is wrong that does not end the boot */
	HY_MSG_WORKER_READY = 22, /* worker: in worker mode, it can serve; it closes its end of the channel next */
	HY_MSG_TRACED = 26,       /* worker, pid as in HY_MSG_TRACE: it is logged, as far as it can be */
};
/* How a worker exits that finds the shared memory overwritten. */
#define HY_EXIT_MEMORY 71
/* How a boot is to be done again. */
enum hy_again {
	HY_AGAIN_PRIVATE = 1, /* with --boot private: the boot opened what processes must not share */
	HY_AGAIN_COLD = 2,    /* without warm-up requests: they left behind what must not be in a snapshot, or failed */
	HY_AGAIN_DIFFERS = 5, /* the same: answers show what they left behind, or it cannot be told */
	/* In another mode than asked for: no worker of this one comes to serve. */
	HY_AGAIN_FORK = 3,    /* with a fork for each request: an extension, or where the boot ended, cannot be rewound */
	HY_AGAIN_CLASSIC = 4, /* in classic mode: the boot left threads, which neither a rewind nor a fork takes along */
	/* As it was, and in classic mode if that boot says the same: it did what a boot does now and then. */
	HY_AGAIN_ONCE_MORE = 6,
};
#define HY_MESSAGE_TEXT 4000
struct hy_message {
	uint32_t type;
	uint32_t worker;
	int32_t pid;
	int32_t value;
	uint32_t text_len;
	char text[HY_MESSAGE_TEXT]; /* sent only as far as text_len */
};

/*
 * Log records on the host's standard error that belong to a request: RS, request id, US, text, LF. Others come as they
 * are. A record of several lines is one: GS stands for the line ends within it. One that is too long for a write that
 * nothing comes between is cut into parts, each written like a record; FS ends all but the last.
 */
#define HY_LOG_RECORD '\x1e'
#define HY_LOG_UNIT '\x1f'
#define HY_LOG_LINE_END '\x1d'
#define HY_LOG_MORE '\x1c'
/* How a line begins that is the host's own word, not PHP's: a warning, or with the second an error. */
#define HY_LOG_OWN "hayate-php: "
#define HY_LOG_ERROR "error: "

#ifndef __cplusplus
_Static_assert(sizeof(struct hy_worker) == HY_LINE, "one line pair per worker");
_Static_assert(sizeof(struct hy_slot) == 3 * HY_LINE, "three line pairs before the areas of a slot");
_Static_assert(sizeof(struct hy_header) == (4 + 2 * HY_MAX_BELLS) * HY_LINE,
               "the header's words keep to their own line pairs");
#endif
#endif
