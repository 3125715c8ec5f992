/* The scanner itself, without Python: what kraftlite/log/scan.py does byte by byte. Fuzzed alone by tests/unit/log/scan_fuzz.c. */
#ifndef KRAFTLITE_SCAN_CORE_H
#define KRAFTLITE_SCAN_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* As in scan.py. */
enum {
    NEED_KEYS = 1,
    BOUND_TIMES = 2,
    REFUSE_TIMES = 4,
};
enum {
    FAULT_VARINT = 1,
    FAULT_RECORD_LENGTH,
    FAULT_BEYOND_RECORD,
    FAULT_LEFT_IN_RECORD,
    FAULT_OFFSET_DELTA,
    FAULT_KEY_LENGTH,
    FAULT_VALUE_LENGTH,
    FAULT_HEADER_COUNT,
    FAULT_HEADER_KEY,
    FAULT_HEADER_VALUE,
    FAULT_BEHIND_RECORDS,
    FAULT_TOO_FEW,
};
enum { ERROR_NO_KEY = 1, ERROR_TIME, ERROR_TIME_TYPE };
enum { AT_LENGTH, AT_ATTRIBUTES, AT_TIME, AT_OFFSET, AT_KEY, AT_VALUE, AT_HEADERS, AT_HEADER_KEY, AT_HEADER_VALUE };

#define NAMED_ERRORS 1000

typedef struct {
    int64_t timestamp;
    int32_t index;
    int32_t kind;
} scan_error;

typedef struct {
    int64_t base, low, high, max_timestamp;
    int64_t left;      /* bytes of the record that are still to come; not negative between two bytes */
    int64_t skip;      /* bytes of the field that is being passed over; at most `left` */
    int64_t headers;   /* of the record, still to come */
    int64_t timestamp; /* of the record */
    int64_t records, refused;
    uint64_t value; /* the varint that is being read */
    int shift;
    int stage, fault, flags, named;
    int overflow; /* the record's timestamp is beyond 64 bits */
    int32_t count;
    scan_error *errors; /* NULL until there is one */
} scan_state;

static inline void scan_init(scan_state *s, int32_t count, int64_t base, int64_t low, int64_t high, int flags)
{
    s->base = base;
    s->low = low;
    s->high = high;
    s->max_timestamp = -1;
    s->left = s->skip = s->headers = s->timestamp = s->records = s->refused = 0;
    s->value = 0;
    s->shift = 0;
    s->stage = AT_LENGTH;
    s->fault = s->named = s->overflow = 0;
    s->flags = flags;
    s->count = count;
    s->errors = NULL;
}

static inline void scan_release(scan_state *s)
{
    free(s->errors);
    s->errors = NULL;
}

static inline void scan_refuse(scan_state *s, int kind)
{
    s->refused++;
    if (s->errors == NULL && s->refused == 1)
        s->errors = malloc(NAMED_ERRORS * sizeof(scan_error));
    if (s->errors != NULL && s->named < NAMED_ERRORS) {
        scan_error *error = &s->errors[s->named++];
        error->index = (int32_t)s->records;
        error->kind = kind;
        error->timestamp = s->timestamp;
    }
}

/* What only the whole record says, once its key is known. */
static inline void scan_judge(scan_state *s, int has_key)
{
    if (!has_key && (s->flags & NEED_KEYS))
        scan_refuse(s, ERROR_NO_KEY);
    else if (s->flags & REFUSE_TIMES)
        scan_refuse(s, ERROR_TIME_TYPE);
    else if ((s->flags & BOUND_TIMES) && (s->overflow || (s->timestamp != -1 && (s->timestamp < s->low || s->timestamp > s->high))))
        scan_refuse(s, ERROR_TIME);
    if (!s->overflow && s->timestamp > s->max_timestamp)
        s->max_timestamp = s->timestamp;
}

static inline int scan_end_record(scan_state *s)
{
    if (s->left != 0)
        return FAULT_LEFT_IN_RECORD;
    s->records++;
    s->stage = AT_LENGTH;
    return 0;
}

/* A length: at least `least`, and within the record. */
static inline int scan_length(scan_state *s, int64_t length, int64_t least, int fault)
{
    if (length < least)
        return fault;
    if (length > s->left)
        return FAULT_BEYOND_RECORD;
    s->skip = length > 0 ? length : 0;
    return 0;
}

/* The varint of this stage is whole. */
static inline int scan_value(scan_state *s)
{
    uint64_t raw = s->value;
    int64_t number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    int fault;
    s->value = 0;
    s->shift = 0;
    switch (s->stage) {
    case AT_LENGTH:
        if (number < 0)
            return FAULT_RECORD_LENGTH;
        s->left = number;
        s->stage = AT_ATTRIBUTES;
        return 0;
    case AT_TIME:
        s->overflow = number > 0 ? s->base > INT64_MAX - number : s->base < INT64_MIN - number;
        s->timestamp = s->overflow ? -1 : s->base + number;
        s->stage = AT_OFFSET;
        return 0;
    case AT_OFFSET:
        if (number != s->records)
            return FAULT_OFFSET_DELTA;
        s->stage = AT_KEY;
        return 0;
    case AT_KEY:
        fault = scan_length(s, number, -1, FAULT_KEY_LENGTH);
        if (fault)
            return fault;
        scan_judge(s, number >= 0);
        s->stage = AT_VALUE;
        return 0;
    case AT_VALUE:
        s->stage = AT_HEADERS;
        return scan_length(s, number, -1, FAULT_VALUE_LENGTH);
    case AT_HEADERS:
        if (number < 0 || number > s->left / 2) /* each takes two bytes at least */
            return FAULT_HEADER_COUNT;
        if (number == 0)
            return scan_end_record(s);
        s->headers = number;
        s->stage = AT_HEADER_KEY;
        return 0;
    case AT_HEADER_KEY:
        s->stage = AT_HEADER_VALUE;
        return scan_length(s, number, 0, FAULT_HEADER_KEY);
    default: /* AT_HEADER_VALUE */
        fault = scan_length(s, number, -1, FAULT_HEADER_VALUE);
        if (fault)
            return fault;
        s->headers--;
        s->stage = AT_HEADER_KEY;
        return s->headers == 0 && s->skip == 0 ? scan_end_record(s) : 0;
    }
}

/* A number of at most `most` bytes before `end`, at *at, which moves behind it; 0: there is none, look byte by byte. */
static inline int scan_number(const uint8_t **at, const uint8_t *end, int most, int64_t *number)
{
    const uint8_t *here = *at;
    uint64_t raw = 0;
    for (int i = 0; i < most && here < end; i++) {
        uint8_t byte = *here++;
        raw |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (!(byte & 0x80)) {
            *number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            *at = here;
            return 1;
        }
    }
    return 0;
}

/* The plain records that lie in these bytes as a whole, without headers and with nothing to refuse; returns where the first other
 * one begins. Nothing but speed: byte by byte they come to the same. */
static inline size_t scan_plain(scan_state *s, const uint8_t *data, size_t position, size_t size)
{
    const uint8_t *at = data + position, *end = data + size;
    int64_t least = s->flags & NEED_KEYS ? 0 : -1;
    if (s->flags & REFUSE_TIMES)
        return position;
    while (s->records != s->count) {
        const uint8_t *start = at;
        int64_t length, delta, offset, key, value;
        if (!scan_number(&at, end, 4, &length) || length < 6 || length > end - at)
            return (size_t)(start - data);
        const uint8_t *stop = at + length;
        at++; /* attributes */
        if (!scan_number(&at, stop, 9, &delta) || !scan_number(&at, stop, 4, &offset) || offset != s->records)
            return (size_t)(start - data);
        if (!scan_number(&at, stop, 4, &key) || key < least || key > stop - at)
            return (size_t)(start - data);
        at += key > 0 ? key : 0;
        if (!scan_number(&at, stop, 4, &value) || value < -1 || value > stop - at)
            return (size_t)(start - data);
        at += value > 0 ? value : 0;
        if (stop - at != 1 || *at != 0)
            return (size_t)(start - data);
        if (delta > 0 ? s->base > INT64_MAX - delta : s->base < INT64_MIN - delta)
            return (size_t)(start - data);
        int64_t timestamp = s->base + delta;
        if ((s->flags & BOUND_TIMES) && timestamp != -1 && (timestamp < s->low || timestamp > s->high))
            return (size_t)(start - data);
        if (timestamp > s->max_timestamp)
            s->max_timestamp = timestamp;
        s->records++;
        at = stop;
    }
    return (size_t)(at - data);
}

static inline int scan_feed(scan_state *s, const uint8_t *data, size_t size)
{
    size_t position = 0;
    while (position < size && !s->fault) {
        if (s->skip > 0) {
            uint64_t here = (uint64_t)(size - position);
            int64_t step = here < (uint64_t)s->skip ? (int64_t)here : s->skip;
            position += (size_t)step;
            s->skip -= step;
            s->left -= step;
            if (s->skip == 0 && s->stage == AT_HEADER_KEY && s->headers == 0)
                s->fault = scan_end_record(s);
            continue;
        }
        if (s->stage == AT_LENGTH && s->shift == 0) {
            position = scan_plain(s, data, position, size);
            if (position == size)
                break;
        }
        if (s->stage == AT_LENGTH) {
            if (s->records == s->count) {
                s->fault = FAULT_BEHIND_RECORDS;
                break;
            }
        } else {
            if (s->left == 0) {
                s->fault = FAULT_BEYOND_RECORD;
                break;
            }
            s->left--;
        }
        uint8_t byte = data[position++];
        if (s->stage == AT_ATTRIBUTES) {
            s->stage = AT_TIME;
            continue;
        }
        /* 32 bits take five bytes, 64 bits ten; the last one holds what is left of them. */
        int last = s->stage == AT_TIME ? 63 : 28;
        if (s->shift == last && byte > (last == 63 ? 1 : 15)) {
            s->fault = FAULT_VARINT;
            break;
        }
        s->value |= (uint64_t)(byte & 0x7F) << s->shift;
        if (byte & 0x80)
            s->shift += 7;
        else
            s->fault = scan_value(s);
    }
    return s->fault;
}

static inline int scan_finish(scan_state *s)
{
    if (!s->fault && s->records != s->count)
        s->fault = FAULT_TOO_FEW;
    return s->fault;
}

#endif
