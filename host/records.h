/*
 * The records of a request head (layout.h), one after the other.
 *
 * The front writes them, and other workers of the application can write over them. What is given lies within the head,
 * whatever stands there; name and value ended in their NULs when they were looked at.
 */
#ifndef HAYATE_RECORDS_H
#define HAYATE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "layout.h"

/* What is left of a head. */
struct cursor {
	const char *at, *end;
};
struct record {
	uint16_t field;
	const char *name, *value;
	uint32_t name_len, value_len;
};

/* Takes the next record; false at the end, and where there is none: then something is left. */
static inline bool next_record(struct cursor *cursor, struct record *record)
{
	struct hy_record fixed;
	size_t left = (size_t)(cursor->end - cursor->at);
	if (left < sizeof fixed + 2) {
		return false;
	}
	memcpy(&fixed, cursor->at, sizeof fixed);
	size_t len = sizeof fixed + (size_t)fixed.name_len + 1 + (size_t)fixed.value_len + 1;
	if (left < len) {
		return false;
	}
	record->field = fixed.field;
	record->name = cursor->at + sizeof fixed;
	record->name_len = fixed.name_len;
	record->value = record->name + fixed.name_len + 1;
	record->value_len = fixed.value_len;
	if (record->name[record->name_len] != '\0' || record->value[record->value_len] != '\0') {
		return false;
	}
	cursor->at += len;
	return true;
}

#endif
