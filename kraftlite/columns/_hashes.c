/* The hashes of many contents: kraftlite/columns/fingerprint.py says what they are for, and has the same in Python.
 *
 * Contents lie one behind another in `data`; `edges` says where each begins, and where the last one ends. Nothing is read before
 * every edge has been held against its neighbour and the length of `data`. Limited API of Python 3.11: one file serves all later
 * versions.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define CONTRACT 1
#define LANES 2
#define WORD 8

static const uint64_t multipliers[LANES] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu};
static const uint64_t seeds[LANES] = {0x243F6A8885A308D3u, 0x13198A2E03707344u};

/* Up to eight bytes as a little-endian number, on any machine. */
static uint64_t word_at(const uint8_t *data, size_t size)
{
    uint8_t bytes[WORD] = {0};
    memcpy(bytes, data, size);
    uint64_t found = 0;
    for (int index = WORD - 1; index >= 0; index--)
        found = found << 8 | bytes[index];
    return found;
}

static uint64_t absorbed(uint64_t hash, uint64_t word, uint64_t multiplier)
{
    hash = (hash ^ word) * multiplier;
    return hash ^ hash >> 32;
}

static uint64_t finished(uint64_t hash, uint64_t first, uint64_t second)
{
    hash *= first;
    hash ^= hash >> 29;
    hash *= second;
    return hash ^ hash >> 32;
}

static void hash_content(const uint8_t *data, size_t size, uint64_t *one, uint64_t *two)
{
    uint64_t a = seeds[0] ^ (uint64_t)size * multipliers[0];
    uint64_t b = seeds[1] ^ (uint64_t)size * multipliers[1];
    size_t at = 0;
    for (; at + WORD <= size; at += WORD) {
        uint64_t word = word_at(data + at, WORD);
        a = absorbed(a, word, multipliers[0]);
        b = absorbed(b, word, multipliers[1]);
    }
    uint64_t tail = word_at(data + at, size - at);
    *one = finished(absorbed(a, tail, multipliers[0]), multipliers[1], multipliers[0]);
    *two = finished(absorbed(b, tail, multipliers[1]), multipliers[0], multipliers[1]);
}

static const char *fault_of(const Py_buffer *data, const Py_buffer *edges, const Py_buffer *found)
{
    if (edges->len < (Py_ssize_t)sizeof(int64_t) || edges->len % (Py_ssize_t)sizeof(int64_t))
        return "edges are not 64-bit integers, one more than contents";
    Py_ssize_t count = edges->len / (Py_ssize_t)sizeof(int64_t) - 1;
    if (found->len / LANES / (Py_ssize_t)sizeof(uint64_t) != count || found->len % (LANES * (Py_ssize_t)sizeof(uint64_t)))
        return "there is not room for two hashes of each content";
    if ((uintptr_t)edges->buf % sizeof(int64_t) || (uintptr_t)found->buf % sizeof(uint64_t))
        return "edges or hashes are not aligned";
    const int64_t *edge = edges->buf;
    if (edge[0] < 0 || edge[count] > data->len)
        return "an edge is outside of the data";
    for (Py_ssize_t row = 0; row < count; row++)
        if (edge[row] > edge[row + 1])
            return "an edge is before the one before it";
    return NULL;
}

static PyObject *fill(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data, edges, found;
    long long longest;
    if (!PyArg_ParseTuple(args, "y*y*w*L", &data, &edges, &found, &longest))
        return NULL;
    const char *fault = fault_of(&data, &edges, &found);
    if (fault == NULL) {
        Py_ssize_t count = edges.len / (Py_ssize_t)sizeof(int64_t) - 1;
        const int64_t *edge = edges.buf;
        uint64_t *hashes = found.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t row = 0; row < count; row++) {
            int64_t size = edge[row + 1] - edge[row];
            if (size <= longest)
                hash_content((const uint8_t *)data.buf + edge[row], (size_t)size, &hashes[row], &hashes[count + row]);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&edges);
    PyBuffer_Release(&found);
    if (fault != NULL) {
        PyErr_SetString(PyExc_ValueError, fault);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef hashes_methods[] = {
    {"fill", fill, METH_VARARGS, "fill(data, edges, found, longest): the hashes of all contents that are not longer."},
    {NULL, NULL, 0, NULL},
};

static int hashes_exec(PyObject *module)
{
    return PyModule_AddIntConstant(module, "CONTRACT", CONTRACT);
}

static PyModuleDef_Slot hashes_slots[] = {{Py_mod_exec, hashes_exec}, {0, NULL}};

static struct PyModuleDef hashes_module = {
    PyModuleDef_HEAD_INIT, "kraftlite.columns._hashes", "The hashes of many contents.", 0, hashes_methods, hashes_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__hashes(void)
{
    return PyModuleDef_Init(&hashes_module);
}
