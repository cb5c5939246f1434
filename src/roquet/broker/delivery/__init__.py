"""When a send is acknowledged and when a held pull is answered; queue locks.

May import of `broker`: config.
"""
