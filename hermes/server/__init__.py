"""What carries requests and bounds them, whatever their protocol: no topic is known here.

clients      who asks: host, listener, principal, groups
outcomes     how a request ends: at once, later, without a response, by closing
fairness, turns
             one reactor shared among connections: quanta of work, calls in threads
responses, sends, carriers, sockets, large_responses, pages
             what goes out: in order, by `sendfile`, within bounds of memory and time
gates, policies, authentication, authorization, refusals
             who may connect, who they are, what they may do, and how they are refused
limits, quotas, sharing
             how many connections and bytes a client may have
settings, checks
             what is in force, and what could not start
metrics      what is counted
"""
