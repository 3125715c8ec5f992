/* Changed bodies through the scanner, each in a block of exactly its size, in chunks: scan_fuzz RUNS SEED. For sanitizers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_scan_core.h"

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return below ? seed % below : 0;
}

static size_t number(uint8_t *out, int64_t value)
{
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    size_t size = 0;
    while (raw > 0x7F) {
        out[size++] = (uint8_t)(raw & 0x7F) | 0x80;
        raw >>= 7;
    }
    out[size++] = (uint8_t)raw;
    return size;
}

static size_t plain_record(uint8_t *out, int at)
{
    uint8_t inside[200];
    size_t size = 0;
    inside[size++] = 0;
    size += number(inside + size, (int64_t)draw(100000) - 50000);
    size += number(inside + size, at);
    int key = (int)draw(8) - 1, value = (int)draw(60) - 1, headers = (int)draw(3);
    size += number(inside + size, key);
    for (int i = 0; i < key; i++) inside[size++] = 'k';
    size += number(inside + size, value);
    for (int i = 0; i < value; i++) inside[size++] = 'v';
    size += number(inside + size, headers);
    for (int i = 0; i < headers; i++) {
        size += number(inside + size, 2);
        inside[size++] = 'h';
        inside[size++] = 'h';
        size += number(inside + size, -1);
    }
    size_t head = number(out, (int64_t)size);
    memcpy(out + head, inside, size);
    return head + size;
}

int main(int argc, char **argv)
{
    long runs = argc > 1 ? atol(argv[1]) : 1000000, good = 0;
    seed = 0x9E3779B97F4A7C15u ^ (uint64_t)(argc > 2 ? atol(argv[2]) : 1);
    static const uint8_t odd[] = {0, 1, 2, 3, 0x0F, 0x10, 0x7F, 0x80, 0xFF};
    for (long run = 0; run < runs; run++) {
        uint8_t body[2048];
        size_t size = 0;
        int count = 1 + (int)draw(5);
        for (int at = 0; at < count; at++) size += plain_record(body + size, at);
        for (uint64_t changes = draw(4); changes > 0; changes--)
            body[draw(size)] = draw(2) ? odd[draw(sizeof odd)] : (uint8_t)draw(256);
        if (draw(4) == 0) size = (size_t)draw(size + 1);
        scan_state state;
        int64_t base = draw(3) == 0 ? INT64_MAX : draw(3) == 0 ? INT64_MIN : 1000;
        scan_init(&state, draw(10) ? count : (int32_t)draw(UINT32_MAX), base, -5, 100000, (int)draw(8));
        size_t position = 0;
        while (position < size) {
            size_t step = 1 + (size_t)draw(draw(2) ? 8 : size);
            if (step > size - position) step = size - position;
            uint8_t *chunk = malloc(step);
            memcpy(chunk, body + position, step);
            int fault = scan_feed(&state, chunk, step);
            free(chunk);
            if (state.left < 0 || state.skip < 0 || state.skip > state.left) return fprintf(stderr, "run %ld\n", run), 1;
            if (fault) break;
            position += step;
        }
        good += scan_finish(&state) == 0;
        scan_release(&state);
    }
    printf("%ld runs, %ld whole\n", runs, good);
    return good == 0;
}
