/* The records of a batch, looked at as their bytes come: kraftlite/log/scan.py says what is looked at, and is the same in Python.
 *
 * A Scanner keeps a few integers between two chunks and nothing of the bytes. No length that it reads is believed: within a
 * record every byte is counted against what the record says of its own length, and `position` never passes `size`.
 * Limited API of Python 3.11: one file serves all later versions.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>

#include "_scan_core.h"

#define CONTRACT 1

typedef struct {
    PyObject_HEAD
    scan_state state;
} Scanner;

static PyObject *scanner_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"count", "base_timestamp", "low", "high", "flags", NULL};
    int count, flags;
    long long base, low, high;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iLLLi", names, &count, &base, &low, &high, &flags))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Scanner *self = (Scanner *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    scan_init(&self->state, count, base, low, high, flags);
    return (PyObject *)self;
}

static void scanner_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    scan_release(&((Scanner *)self)->state);
    release(self);
    Py_DECREF(type);
}

static PyObject *scanner_feed(PyObject *object, PyObject *data)
{
    Scanner *self = (Scanner *)object;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    int fault = scan_feed(&self->state, (const uint8_t *)view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromLong(fault);
}

static PyObject *scanner_finish(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    return PyLong_FromLong(scan_finish(&((Scanner *)object)->state));
}

static PyObject *scanner_records(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromLongLong(((Scanner *)object)->state.records);
}

static PyObject *scanner_max_timestamp(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromLongLong(((Scanner *)object)->state.max_timestamp);
}

static PyObject *scanner_refused(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromLongLong(((Scanner *)object)->state.refused);
}

static PyObject *scanner_errors(PyObject *object, void *ignored)
{
    (void)ignored;
    scan_state *state = &((Scanner *)object)->state;
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    for (int i = 0; i < state->named; i++) {
        scan_error *error = &state->errors[i];
        PyObject *item = Py_BuildValue("(iiL)", (int)error->index, (int)error->kind, (long long)error->timestamp);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_XDECREF(item);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(item);
    }
    return list;
}

static PyMethodDef scanner_methods[] = {
    {"feed", scanner_feed, METH_O, "The next bytes. 0, or the fault that ends it."},
    {"finish", scanner_finish, METH_NOARGS, "No more bytes come. 0, or the fault."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef scanner_attributes[] = {
    {"records", scanner_records, NULL, "Whole records so far.", NULL},
    {"max_timestamp", scanner_max_timestamp, NULL, "The highest timestamp so far; -1 without one.", NULL},
    {"refused", scanner_refused, NULL, "How many records are refused by themselves.", NULL},
    {"errors", scanner_errors, NULL, "The first of them: (index, kind, timestamp).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_dealloc},
    {Py_tp_methods, scanner_methods},
    {Py_tp_getset, scanner_attributes},
    {0, NULL},
};

static PyType_Spec scanner_spec = {"kraftlite.log._scan.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, scanner_slots};

static int scan_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&scanner_spec);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "Scanner", type);
    Py_DECREF(type);
    if (failed)
        return -1;
    return PyModule_AddIntConstant(module, "CONTRACT", CONTRACT);
}

static PyModuleDef_Slot scan_module_slots[] = {{Py_mod_exec, scan_exec}, {0, NULL}};

static struct PyModuleDef scan_module = {
    PyModuleDef_HEAD_INIT, "kraftlite.log._scan", "The records of a batch, looked at as their bytes come.", 0, NULL,
    scan_module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModuleDef_Init(&scan_module);
}
