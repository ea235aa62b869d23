/* doctor.h: `airlock doctor`: tries every layer and says what is missing and how to get it. */
#ifndef AIRLOCK_CLI_DOCTOR_H
#define AIRLOCK_CLI_DOCTOR_H

/*
 * argv[0] is the verb. Exit status: 0 if `airlock run` will work without --without, 1 if a layer that it insists
 * on is missing, 2 for a wrong command line.
 */
int cmd_doctor(int argc, char **argv);

#endif
