/*
 * lazy.h: where the large arrays of the static programs lie that start with each sandbox.
 *
 * Behind .bss instead of in it: what a start touches of .data and .bss, the C library's few hundred bytes and
 * ours, shares a page or two then, instead of lying in front of, between and behind arrays of which it touches
 * one end. Each page touched costs as much as fifteen system calls where paging is virtual.
 */
#ifndef AIRLOCK_BASE_LAZY_H
#define AIRLOCK_BASE_LAZY_H

/* No linker script knows the name, so GNU ld puts it behind .bss; gcc knows that it holds no bytes in the file. */
#define LAZY_BSS __attribute__((section(".sbss.lazy")))

#endif
