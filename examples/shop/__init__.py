"""A shop: products, orders and the demand for them, guarded without a lock.

facts.py           the facts, and the tags that they are found by
catalog.py         AddProduct, ChangeProductName, ChangeProductPrice, SyncProduct
orders.py          PlaceOrder: one order, many products
demand.py          RecordDemand, RevokeDemand: the exact pair of a product and an order
order_product.py   OrderProduct: a cap over all orders of one customer
app.py             all of it as one schema, and a demonstration: python -m examples.shop.app
"""
