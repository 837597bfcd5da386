/*
 * Request heads as no front writes them, given to the reader that the host has (records.h). Each lies in memory that
 * ends where it ends, so that a look beyond it is seen (AddressSanitizer). What is read lies within the head, ends in
 * NULs, and the reading ends; a head that nothing was done to is read as it was written.
 *
 * FUZZ_SECONDS says for how long at least (1), FUZZ_SEED repeats a run.
 */
#include "records.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LONGEST 2048
#define MOST 24

struct head {
	char bytes[LONGEST];
	size_t len;
	/* Where each record begins. */
	size_t at[MOST];
	int records;
};

static uint64_t seed, state, executions, records_read;

/* xorshift64* */
static uint64_t any(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1du;
}

static size_t below(size_t n)
{
	return n == 0 ? 0 : (size_t)(any() >> 16) % n;
}

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "records: %s: FUZZ_SEED=%llu, execution %llu\n", what, (unsigned long long)seed,
	        (unsigned long long)executions);
	exit(1);
}

static void put(struct head *head, uint16_t field, size_t name_len, size_t value_len)
{
	struct hy_record fixed = {.field = field, .name_len = (uint16_t)name_len, .value_len = (uint32_t)value_len};
	size_t len = sizeof fixed + name_len + 1 + value_len + 1;
	if (head->records == MOST || len > sizeof head->bytes - head->len) {
		return;
	}
	char *to = head->bytes + head->len;
	head->at[head->records++] = head->len;
	memcpy(to, &fixed, sizeof fixed);
	memset(to + sizeof fixed, 'n', name_len);
	to[sizeof fixed + name_len] = '\0';
	memset(to + sizeof fixed + name_len + 1, 'v', value_len);
	to[len - 1] = '\0';
	head->len += len;
}

static void compose(struct head *head)
{
	head->len = 0;
	head->records = 0;
	for (size_t n = below(MOST + 1); n > 0; n--) {
		put(head, (uint16_t)below(HY_FIELD_COUNT + 1), below(4) == 0 ? below(40) : 0,
		    below(8) == 0 ? below(700) : below(30));
	}
}

static void spoil(struct head *head)
{
	for (size_t n = 1 + below(4); n > 0; n--) {
		size_t at = below(head->len), record = head->at[below((size_t)head->records)];
		uint32_t lengths[] = {
		    0, 1, 0xff, 0xffff, 0x10000, 0x7fffffff, 0xffffffff, (uint32_t)(head->len - record), (uint32_t)any()};
		uint32_t length = lengths[below(sizeof lengths / sizeof lengths[0])] - (uint32_t)below(14);
		switch (below(6)) {
		case 0:
			head->bytes[at] = (char)any();
			break;
		case 1:
			if (record + sizeof(struct hy_record) <= head->len) {
				memcpy(head->bytes + record + offsetof(struct hy_record, value_len), &length, sizeof length);
			}
			break;
		case 2:
			if (record + sizeof(struct hy_record) <= head->len) {
				memcpy(head->bytes + record + offsetof(struct hy_record, name_len), &length, sizeof(uint16_t));
			}
			break;
		case 3:
			head->len = at;
			break;
		case 4:
			memmove(head->bytes + at, head->bytes + at + (head->len - at) / 2, head->len - at - (head->len - at) / 2);
			break;
		default:
			/* An end that is none. */
			for (size_t i = at; i < head->len; i++) {
				if (head->bytes[i] == '\0') {
					head->bytes[i] = 'x';
					break;
				}
			}
		}
		if (head->len == 0) {
			return;
		}
	}
}

/* Reads it as host/request.c does; whether nothing was left. */
static bool read_all(const char *bytes, size_t len, int *records)
{
	struct cursor cursor = {bytes, bytes + len};
	struct record record;
	const char *before = bytes;
	*records = 0;
	while (next_record(&cursor, &record)) {
		if (cursor.at <= before || cursor.at > cursor.end) {
			fail("it does not come nearer to its end");
		}
		if (record.name < before || record.value <= record.name || record.value + record.value_len >= cursor.at) {
			fail("a record lies outside of the head");
		}
		if (strlen(record.name) > record.name_len || strlen(record.value) > record.value_len) {
			fail("a string has no end");
		}
		before = cursor.at;
		*records += 1;
	}
	records_read += (uint64_t)*records;
	return cursor.at == cursor.end;
}

static void one(void)
{
	static struct head head;
	int records;
	compose(&head);
	bool spoilt = head.len > 0 && below(8) != 0;
	if (spoilt) {
		spoil(&head);
	}
	char *exact = malloc(head.len + (head.len == 0));
	if (exact == NULL) {
		fail("no memory");
	}
	memcpy(exact, head.bytes, head.len);
	bool whole = read_all(exact, head.len, &records);
	if (!spoilt && (!whole || records != head.records)) {
		fail("what the front wrote is not read");
	}
	free(exact);
	executions++;
}

static time_t now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec;
}

int main(void)
{
	const char *seconds = getenv("FUZZ_SECONDS"), *given = getenv("FUZZ_SEED");
	seed = given == NULL ? (uint64_t)getpid() : strtoull(given, NULL, 10);
	state = (seed | 1) * 0x9e3779b97f4a7c15u;
	time_t end = now() + (seconds == NULL ? 1 : atol(seconds));
	do {
		for (int i = 0; i < 1000; i++) {
			one();
		}
	} while (now() <= end);
	printf("fuzz request heads in C: %llu executions, %llu records, FUZZ_SEED=%llu\n", (unsigned long long)executions,
	       (unsigned long long)records_read, (unsigned long long)seed);
	return records_read > executions / 10 ? 0 : 1;
}
