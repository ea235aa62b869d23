/*
 * banned.h: calls that must not appear in this project.
 *
 * Force-included before every source file. The system headers that declare the
 * names come first, so only a call in our own code expands to an undeclared
 * identifier and stops the build.
 */
#ifndef AIRLOCK_BASE_BANNED_H
#define AIRLOCK_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* glibc makes some of them macros of its own: by optimisation level and compiler. */
#undef strcpy
#undef strncpy
#undef strcat
#undef strncat
#undef sprintf
#undef vsprintf
#undef gets
#undef atoi
#undef atol
#undef atoll
#undef system
#undef popen
#undef mktemp
#undef tmpnam
#undef strtok
#undef alloca
#undef localtime
#undef gmtime

#define strcpy(...) banned_strcpy_use_snprintf_or_buf
#define strncpy(...) banned_strncpy_use_snprintf_or_buf
#define strcat(...) banned_strcat_use_buf
#define strncat(...) banned_strncat_use_buf
#define sprintf(...) banned_sprintf_use_snprintf_or_buf
#define vsprintf(...) banned_vsprintf_use_vsnprintf
#define gets(...) banned_gets
#define atoi(...) banned_atoi_use_str_to_u64
#define atol(...) banned_atol_use_str_to_u64
#define atoll(...) banned_atoll_use_str_to_u64
#define system(...) banned_system_use_os_process
#define popen(...) banned_popen_use_os_process
#define mktemp(...) banned_mktemp
#define tmpnam(...) banned_tmpnam
#define strtok(...) banned_strtok_use_cursor
#define alloca(...) banned_alloca
#define localtime(...) banned_localtime_use_localtime_r
#define gmtime(...) banned_gmtime_use_gmtime_r

#endif
