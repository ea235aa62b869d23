/*
 * forward.h: what the network proxy on the host and the port inside a sandbox (guest/forward.h) say to each other.
 *
 * Packets of one byte over a SOCK_SEQPACKET channel: 'r' once, the port is there; then, each time a client has
 * connected, 'c', and the host answers 'y' with one end of a socket pair, or 'n' with none: too many.
 */
#ifndef AIRLOCK_WIRE_FORWARD_H
#define AIRLOCK_WIRE_FORWARD_H

#define GATEWAY_MODE_FORWARD "forward" /* as PAPERCLIP_API_BRIDGE_MODE of the gateway program */
#define FORWARD_READY 'r'
#define FORWARD_CONNECT 'c'
#define FORWARD_YES 'y'
#define FORWARD_NO 'n'

#endif
